"""Runs jobs alone, one after the other, and then together: how a saving is measured."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console

from dataflow.jobs import JobSpec
from plexrl.cli.finishing import AloneRun, as_alone, finish, hash_of
from plexrl.cli.outputs import OutputFolder
from plexrl.cli.report import Report
from plexrl.cli.running import run_jobs
from plexrl.runtime.client import Cluster
from plexrl.spelling import counted


def run_and_report(
    cluster: Cluster,
    jobs: Sequence[JobSpec],
    output: OutputFolder,
    console: Console,
    *,
    seed: int,
    is_compared: bool,
    resume: bool = False,
    title: str = "",
) -> Report:
    """Run jobs together, before that each alone if asked to, and write everything down.

    Parameters
    ----------
    cluster
        Where to run them.
    jobs
        What to run.
    output
        Where results go.
    console
        Where to show what happens.
    seed
        What to state as the seed.
    is_compared
        Whether to run each job alone first.
    resume
        Go on from what the store holds.
    title
        Heading of the timeline.
    """
    alone = {}
    if is_compared:
        for number, job in enumerate(jobs, start=1):
            heading = f"alone, {number} of {len(jobs)}: {job.name}"
            alone[job.name] = _run_alone(cluster, job, console, heading)
    heading = f"together: {', '.join(job.name for job in jobs)}"
    shared = run_jobs(cluster, jobs, console, title=heading, resume=resume)
    title = title or (
        f"{counted(len(jobs), 'job')} on {counted(shared.stretch.num_groups, 'group')}"
    )
    return finish(cluster, jobs, shared, alone, output, seed=seed, title=title)


def _run_alone(cluster: Cluster, job: JobSpec, console: Console, title: str) -> AloneRun:
    twin = as_alone(job)
    ran = run_jobs(cluster, [twin], console, title=title)
    status = ran.statuses[twin.name]
    return AloneRun(ran, status, hash_of(cluster, status))
