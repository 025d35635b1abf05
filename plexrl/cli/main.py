"""The command `plexrl`."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import cloudpickle
import typer
from rich.console import Console

import plexrl
from dataflow.jobs import JobSpec
from plexrl.cli import demo as demonstration
from plexrl.cli import looking, planner, samples, steering
from plexrl.cli.base_model import shown_base
from plexrl.cli.building import build_job
from plexrl.cli.comparing import run_and_report
from plexrl.cli.guarding import FAILED, guarded
from plexrl.cli.jobfile import read_job_file
from plexrl.cli.outputs import OutputFolder
from plexrl.cli.report import Report
from plexrl.cli.starts import read_start
from plexrl.cli.store_commands import store_app
from plexrl.cli.tables import render
from plexrl.cli.teaching import teach
from plexrl.errors import InputError, JobError, JobFileError
from plexrl.runtime.cluster import LocalCluster
from plexrl.runtime.facts import job_facts
from plexrl.runtime.registry import JobRegistry

app = typer.Typer(
    help="Many RLVR jobs share the accelerators of few.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    epilog="Exit statuses: 0 fine; 1 something failed; 2 something given is wrong, and nothing was "
    "started; 130 stopped by Ctrl-C, and what was committed is kept.",
)
app.add_typer(store_app, name="store")
planner.register(app)

_PLAIN_WIDTH = 100

Json = Annotated[
    bool, typer.Option("--json", help="Print one JSON object on standard output, nothing else.")
]
Output = Annotated[Path, typer.Option(help="Folder for results; made if it is not there.")]
Groups = Annotated[int, typer.Option(min=1, help="Groups of accelerators, one process each.")]


@app.command()
def demo(
    output: Output = Path("plexrl-demo"),
    iterations: Annotated[
        int, typer.Option(min=1, help="Iterations of each job.")
    ] = demonstration.ITERATIONS,
    seed: Annotated[int, typer.Option(help="Every draw is a function of it.")] = 0,
    is_json: Json = False,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Warm the base model up anew, past the cache.")
    ] = False,
) -> None:
    """Three jobs learn on one group, first each alone, then together."""
    console = Console(stderr=True)
    store = demonstration.store_of(output)
    with guarded(console, is_json=is_json, store=str(store)):
        folder = OutputFolder(output)
        report = demonstration.run_demo(
            folder, console, iterations=iterations, seed=seed, is_fresh=fresh
        )
        _show(report, folder, is_json=is_json)


@app.command()
def run(
    files: Annotated[list[Path], typer.Argument(help="Job files (YAML), one job each.")],
    groups: Groups = 1,
    store: Annotated[str, typer.Option(help="Folder or URL of the Zarr store.")] = "plexrl-store",
    output: Output = Path("plexrl-output"),
    compare: Annotated[
        bool, typer.Option("--compare", help="Run each job alone first, and compare.")
    ] = False,
    start: Annotated[
        str | None,
        typer.Option(
            metavar="STORE:JOB@VERSION",
            help="Fork: go on from a committed version of another job, with these settings. "
            "`plexrl store ls` shows which versions are there.",
        ),
    ] = None,
    is_json: Json = False,
) -> None:
    """Run jobs of your own, together on the same groups."""
    console = Console(stderr=True)
    with guarded(console, is_json=is_json, store=store):
        jobs = _read_jobs(files, console)
        _refuse_known(store, jobs)
        if start is not None:
            fork = read_start(start, jobs)
            jobs = [replace(job, start=fork) for job in jobs]
        folder = OutputFolder(output)
        with LocalCluster(groups=groups, store=store) as cluster:
            report = run_and_report(
                cluster, jobs, folder, console, seed=jobs[0].seed, is_compared=compare
            )
        _show(report, folder, is_json=is_json)


@app.command()
def resume(
    store: Annotated[str, typer.Argument(help="Folder or URL of the store that was in use.")],
    groups: Groups = 1,
    output: Output = Path("plexrl-output"),
    is_json: Json = False,
) -> None:
    """Go on with the jobs of a store that have not finished."""
    console = Console(stderr=True)
    with guarded(console, is_json=is_json, store=store):
        jobs = _unfinished_jobs(store)
        folder = OutputFolder(output)
        with LocalCluster(groups=groups, store=store) as cluster:
            report = run_and_report(
                cluster,
                jobs,
                folder,
                console,
                seed=jobs[0].seed,
                is_compared=False,
                resume=True,
            )
        _show(report, folder, is_json=is_json)


looking.register(app)
steering.register(app)
samples.register(app)


@app.command()
def version(is_json: Json = False) -> None:
    """Print the version."""
    if is_json:
        _print_json({"version": plexrl.__version__})
    else:
        sys.stdout.write(f"{plexrl.__version__}\n")


teach(app)


def _refuse_known(store: str, jobs: Sequence[JobSpec]) -> None:
    """Raise if the store knows one of the jobs: a new run must not go on from its states."""
    registry = JobRegistry(store)
    for job in jobs:
        if job.name in registry.names():
            raise JobError(
                f"the store {store} already holds job {job.name!r}; go on with it by "
                f"'plexrl resume {store}', or give the job another name, or --store another place"
            )


def _read_jobs(files: list[Path], console: Console) -> list[JobSpec]:
    """All jobs, checked to the end before anything starts."""
    read = [read_job_file(path) for path in files]
    places: dict[str, Path] = {}
    for file in read:
        if file.name in places:
            raise JobFileError(
                f"{file.path}: name is {file.name!r}, as in {places[file.name]}; give each job a "
                "name of its own"
            )
        places[file.name] = file.path
    jobs = [build_job(file, lambda: shown_base(console)) for file in read]
    for job in jobs:
        job_facts(job)
    return jobs


def _unfinished_jobs(store: str) -> list[JobSpec]:
    registry = JobRegistry(store)
    if not registry.names():
        raise InputError(f"{store} holds no jobs; name what --store named")
    names = registry.unfinished()
    if not names:
        raise InputError(f"every job in {store} has finished: {', '.join(registry.names())}")
    jobs = []
    for name in names:
        job = cloudpickle.loads(registry.spec(name))
        assert isinstance(job, JobSpec)
        jobs.append(job)
    return jobs


def _show(report: Report, folder: OutputFolder, *, is_json: bool) -> None:
    """Print the result; a job that failed or differs makes the exit status 1."""
    if is_json:
        _print_json({**report.to_json(), "output": str(folder.path)})
    else:
        # A file or a pipe has no width of its own.
        console = Console(width=None if sys.stdout.isatty() else _PLAIN_WIDTH)
        console.print(render(report))
        console.print(f"results  {folder.path}", highlight=False, soft_wrap=True)
    if not report.is_good:
        raise typer.Exit(FAILED)


def _print_json(data: dict[str, object]) -> None:
    sys.stdout.write(json.dumps(data, default=str) + "\n")


def main() -> None:
    """Entry point."""
    app(prog_name="plexrl")
