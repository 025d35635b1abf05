"""The commands of operators: cancel, pause, unpause, move, drain, undrain, replan."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Annotated

import typer
from rich.console import Console

from plexrl.cli.attached import attached
from plexrl.cli.guarding import guarded
from plexrl.core.status import ClusterStatus
from plexrl.runtime.client import Cluster

LOOK_S = 0.2
"""Seconds between looks while waiting for something to take effect."""

Address = Annotated[
    str | None,
    typer.Option(
        "--address",
        "-a",
        help="Address of the Dask scheduler, such as tcp://127.0.0.1:8786; by default "
        "DASK_SCHEDULER_ADDRESS.",
        show_default=False,
    ),
]
Job = Annotated[str, typer.Argument(metavar="JOB", help="Name of the job, as status shows it.")]
Group = Annotated[str, typer.Argument(metavar="GROUP", help="Name of the group.")]
Reason = Annotated[str, typer.Option(help="Why, in a few words; status shows it to others.")]
Now = Annotated[
    bool,
    typer.Option(
        "--now", help="End the iteration that runs; it is done again, with the same bits."
    ),
]
Wait = Annotated[
    bool, typer.Option("--wait", help="Return once it is in effect; says what it waits for.")
]
Json = Annotated[
    bool, typer.Option("--json", help="Print one JSON object on standard output, nothing else.")
]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    for command in (cancel, pause, unpause, move, drain, undrain, replan):
        app.command()(command)


def cancel(
    job: Job,
    iteration: Annotated[
        bool,
        typer.Option(
            "--iteration",
            help="Only the iteration that runs: the job goes back to its last committed version "
            "and does it again. For one that is stuck.",
        ),
    ] = False,
    address: Address = None,
    is_json: Json = False,
) -> None:
    """End a job for good; what it committed stays in the store.

    `plexrl resume` does not go on with a cancelled job; submit it with resume=True to do so.
    """

    def ask(cluster: Cluster) -> str:
        run = cluster.run(job)
        if iteration:
            return run.replay()
        run.cancel()
        return f"job {job} is {run.status().state}"

    _steer(address, ask, is_json=is_json)


def pause(
    job: Job,
    reason: Reason = "",
    now: Now = False,
    wait: Wait = False,
    address: Address = None,
    is_json: Json = False,
) -> None:
    """Let a job rest after its iteration: its group is free, its states are in the store.

    It goes on with `plexrl unpause`. A job does not stay paused beyond the life of its cluster:
    `plexrl resume` goes on with it.
    """

    def pending(status: ClusterStatus) -> str:
        return next((row.asked for row in status.jobs if row.name == job), "")

    _steer(
        address,
        lambda cluster: cluster.run(job).pause(reason, now=now),
        pending if wait else None,
        is_json=is_json,
    )


def unpause(job: Job, address: Address = None, is_json: Json = False) -> None:
    """Let a paused job go on, on its old group or wherever there is room."""
    _steer(address, lambda cluster: cluster.run(job).unpause(), is_json=is_json)


def move(
    job: Job,
    group: Group,
    reason: Reason = "",
    now: Now = False,
    wait: Wait = False,
    address: Address = None,
    is_json: Json = False,
) -> None:
    """Place a job on another group, once its iteration has ended."""

    def pending(status: ClusterStatus) -> str:
        return next((row.asked for row in status.jobs if row.name == job), "")

    _steer(
        address,
        lambda cluster: cluster.run(job).move(group, reason, now=now),
        pending if wait else None,
        is_json=is_json,
    )


def drain(
    group: Group,
    reason: Reason = "",
    now: Now = False,
    wait: Wait = False,
    address: Address = None,
    is_json: Json = False,
) -> None:
    """Empty a group, to repair or to remove it: its jobs go on elsewhere.

    No iteration begins there any more. A job that no other group has room for waits, and its
    status says so. Once drained, end the group's worker, or take it back with `plexrl undrain`.
    """

    def pending(status: ClusterStatus) -> str:
        told = next((row.draining for row in status.groups if row.name == group), "")
        return "" if told.startswith("drained") else told

    _steer(
        address,
        lambda cluster: cluster.drain(group, reason, now=now),
        pending if wait else None,
        is_json=is_json,
    )


def undrain(group: Group, address: Address = None, is_json: Json = False) -> None:
    """Let jobs run on a group again after `plexrl drain`."""
    _steer(address, lambda cluster: cluster.undrain(group), is_json=is_json)


def replan(reason: Reason = "", address: Address = None, is_json: Json = False) -> None:
    """Plan now, instead of when a job arrives, a profile drifts or the period ends."""
    _steer(address, lambda cluster: cluster.replan(reason), is_json=is_json)


def _steer(
    address: str | None,
    ask: Callable[[Cluster], str],
    pending: Callable[[ClusterStatus], str] | None = None,
    *,
    is_json: bool,
) -> None:
    """Ask a cluster for something, and wait until nothing of it is pending any more."""
    console = Console(stderr=True)
    with guarded(console, is_json=is_json), attached(address) as cluster:
        told = ask(cluster)
        if pending is not None:
            told = _wait_until_done(cluster, pending, console)
        if is_json:
            sys.stdout.write(json.dumps({"told": told}) + "\n")
        else:
            sys.stdout.write(f"{told}\n")


def _wait_until_done(
    cluster: Cluster, pending: Callable[[ClusterStatus], str], console: Console
) -> str:
    said = ""
    while told := pending(cluster.status()):
        if told != said:
            console.print(told, highlight=False, markup=False, soft_wrap=True)
            said = told
        time.sleep(LOOK_S)
    return "done"
