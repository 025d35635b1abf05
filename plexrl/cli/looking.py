"""The commands that look at a running cluster: status, top, trace, drawing."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from plexrl.cli import completing
from plexrl.cli.attached import attached
from plexrl.cli.guarding import guarded
from plexrl.cli.live import Display, panel
from plexrl.cli.occupancy import since_start
from plexrl.cli.waiting import waiting
from plexrl.dashboard.perfetto import write_perfetto
from plexrl.dashboard.there import status_of
from plexrl.errors import InputError
from plexrl.runtime.client import Cluster
from plexrl.runtime.messages import Trace
from plexrl.spelling import counted

PLAIN_WIDTH = 140
"""Columns where the output is no terminal: wide enough for what a job waits for."""

Address = Annotated[
    str | None,
    typer.Argument(
        help="Address of the Dask scheduler, such as tcp://127.0.0.1:8786; by default "
        "DASK_SCHEDULER_ADDRESS.",
        show_default=False,
    ),
]
Json = Annotated[
    bool, typer.Option("--json", help="Print one JSON object on standard output, nothing else.")
]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command()(status)
    app.command()(top)
    app.command()(trace)
    app.command()(drawing)


def status(address: Address = None, is_json: Json = False) -> None:
    """Show jobs, groups and the plan of a running cluster, once."""
    errors = Console(stderr=True)
    with guarded(errors, is_json=is_json), attached(address, errors) as cluster:
        if is_json:
            _print_reading(cluster)
            return
        found = cluster.status()
        console = Console(width=None if sys.stdout.isatty() else PLAIN_WIDTH)
        console.print(panel(found, list(found.jobs), since_start(found), ""))


def top(
    address: Address = None,
    every_s: Annotated[
        float, typer.Option("--every", min=0.1, help="Seconds between looks.")
    ] = 0.5,
    num_looks: Annotated[
        int, typer.Option("--looks", min=0, help="Stop after so many looks; 0 never stops.")
    ] = 0,
    is_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object per look, as status does.")
    ] = False,
) -> None:
    """Watch a running cluster until Ctrl-C."""
    errors = Console(stderr=True)
    with guarded(errors, is_json=is_json), attached(address, errors) as cluster:
        try:
            if is_json:
                _watch(partial(_print_reading, cluster), every_s, num_looks)
                return
            with Display(Console(), title="") as display:
                _watch(lambda: display.update(cluster.status()), every_s, num_looks)
        except KeyboardInterrupt:
            return


def _watch(look: Callable[[], None], every_s: float, num_looks: int) -> None:
    seen = 0
    while True:
        look()
        seen += 1
        if seen == num_looks:
            return
        time.sleep(every_s)


def trace(
    address: Address = None,
    output: Annotated[
        Path, typer.Option("--output", "-o", help="File to write, for ui.perfetto.dev.")
    ] = Path("plexrl-trace.json"),
    is_json: Json = False,
) -> None:
    """Write what ran so far as a Chrome trace."""
    errors = Console(stderr=True)
    with guarded(errors, is_json=is_json), attached(address, errors) as cluster:
        with waiting(errors, "fetching what ran"):
            found = cluster.trace()
        _write(output, found)
        told = {
            "file": str(output),
            "leases": len(found.leases),
            "iterations": len(found.iterations),
        }
        if is_json:
            sys.stdout.write(json.dumps(told) + "\n")
        else:
            leases = counted(len(found.leases), "lease")
            sys.stdout.write(f"{output}: {leases}; open it in ui.perfetto.dev\n")


def _write(path: Path, found: Trace) -> None:
    try:
        write_perfetto(path, found.leases, found.iterations)
    except OSError as error:
        raise InputError(f"{path} cannot be written ({error.strerror}); name another") from error


def drawing(
    job: Annotated[
        str,
        typer.Argument(metavar="JOB", help="Name of the job.", autocompletion=completing.jobs),
    ],
    address: Annotated[
        str | None,
        typer.Option(
            "--address",
            "-a",
            help="Address of the Dask scheduler; by default DASK_SCHEDULER_ADDRESS.",
            show_default=False,
        ),
    ] = None,
    is_json: Json = False,
) -> None:
    """Show which samples of a job are being drawn, those with most tokens first.

    One that goes on and on ends with `plexrl cancel JOB --sample PROMPT SAMPLE`.
    """
    errors = Console(stderr=True)
    with guarded(errors, is_json=is_json), attached(address, errors) as cluster:
        rows = cluster.run(job).drawing()
        if is_json:
            sys.stdout.write(json.dumps({"samples": rows}) + "\n")
            return
        lines = [
            f"sample {row['sample_index']} of prompt {row['prompt_index']}: "
            f"{row['num_tokens']} tokens"
            for row in rows
        ]
        sys.stdout.write("\n".join(lines or [f"job {job} draws no sample right now"]) + "\n")


def _print_reading(cluster: Cluster) -> None:
    told = cluster.client.run_on_scheduler(status_of)
    sys.stdout.write(json.dumps(told, default=str) + "\n")
    sys.stdout.flush()
