"""The commands of operators: cancel, pause, unpause, move, drain, undrain, replan, apply."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Container, Mapping
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from plexrl.cli import completing
from plexrl.cli.attached import attached
from plexrl.cli.guarding import guarded
from plexrl.cli.planner_fleet_force import read_fleet_plan
from plexrl.cli.problemfile import load, read_plan
from plexrl.cli.serving import BY_LENGTH
from plexrl.core.status import ClusterStatus
from plexrl.runtime.client import Cluster
from plexrl.runtime.messages import AppliedPlan

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
Job = Annotated[
    str,
    typer.Argument(
        metavar="JOB", help="Name of the job, as status shows it.", autocompletion=completing.jobs
    ),
]
Group = Annotated[
    str,
    typer.Argument(metavar="GROUP", help="Name of the group.", autocompletion=completing.groups),
]
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
    for command in (cancel, pause, unpause, move, drain, undrain, replan, apply):
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
    sample: Annotated[
        tuple[int, int] | None,
        typer.Option(
            metavar="PROMPT SAMPLE",
            help="Only this sample: it ends with the token it is at, and nothing is learned from "
            "it. Numbers as Run.samples has them.",
            show_default=False,
        ),
    ] = None,
    address: Address = None,
    is_json: Json = False,
) -> None:
    """End a job for good; what it committed stays in the store.

    `plexrl resume` does not go on with a cancelled job; submit it with resume=True to do so.
    """

    def ask(cluster: Cluster) -> str:
        run = cluster.run(job)
        if sample is not None:
            return run.cancel_sample(*sample)
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
    _steer(
        address,
        lambda cluster: cluster.run(job).pause(reason, now=now),
        partial(_asked_of, [job]) if wait else None,
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
    _steer(
        address,
        lambda cluster: cluster.run(job).move(group, reason, now=now),
        partial(_asked_of, [job]) if wait else None,
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


def apply(
    file: Annotated[
        Path, typer.Argument(metavar="PLAN", help="Plan (JSON), as plexrl plan --output wrote it.")
    ],
    address: Address = None,
    wait: Wait = False,
    is_json: Json = False,
) -> None:
    """Put a plan into force: its orders or its rule at once, its placement as iterations end.

    Refused with the difference if jobs, groups or functions are not those of the cluster, or if
    the plan breaks a requirement with the lengths measured there.
    """
    console = Console(stderr=True)
    with guarded(console, is_json=is_json):
        plan = _plan_of(file)
        with attached(address, console) as cluster:
            done = cluster.apply(plan)
            moving = {job for job, _, _ in done.moves}
            if wait:
                _wait_until_done(cluster, partial(_asked_of, moving), console)
    if is_json:
        sys.stdout.write(json.dumps(_applied_json(done)) + "\n")
        return
    cycles, slowdowns = dict(done.cycles_s), dict(done.slowdowns)
    lines = [f"{job} moves from {source} to {target}" for job, source, target in done.moves]
    lines += [f"{group} repeats a cycle of {cycle:.3f} s" for group, cycle in cycles.items()]
    if done.ruled:
        lines.append(f"{', '.join(done.ruled)}: {BY_LENGTH}")
    lines += [f"{job} is slowed {factor:.2f} times" for job, factor in slowdowns.items()]
    sys.stdout.write("\n".join(lines) + "\n")


def _applied_json(done: AppliedPlan) -> dict[str, object]:
    return {
        "moves": [{"job": job, "from": old, "to": new} for job, old, new in done.moves],
        "cycles_s": dict(done.cycles_s),
        "slowdowns": dict(done.slowdowns),
        "shortest_first": list(done.ruled),
    }


def _plan_of(file: Path) -> Mapping[str, object]:
    """What `plexrl plan` wrote for one pool or for several, checked as far as a file can be."""
    data = load(file)
    if isinstance(data, Mapping) and "seats" in data:
        plan, _ = read_fleet_plan(file)
        return plan.to_json()
    return read_plan(file).to_json()


def _asked_of(jobs: Container[str], status: ClusterStatus) -> str:
    """What is still to come of what was asked of these jobs."""
    return "; ".join(f"{j.name} {j.asked}" for j in status.jobs if j.name in jobs and j.asked)


def _steer(
    address: str | None,
    ask: Callable[[Cluster], str],
    pending: Callable[[ClusterStatus], str] | None = None,
    *,
    is_json: bool,
) -> None:
    """Ask a cluster for something, and wait until nothing of it is pending any more."""
    console = Console(stderr=True)
    with guarded(console, is_json=is_json), attached(address, console) as cluster:
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
