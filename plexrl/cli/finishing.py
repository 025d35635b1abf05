"""What follows a run: exported models, hashes, the report and the output folder."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from dataflow.jobs import JobSpec
from plexrl.cli.machine import this_machine
from plexrl.cli.outputs import OutputFolder
from plexrl.cli.report import JobOutcome, Report, compare
from plexrl.cli.running import Ran
from plexrl.core.status import JobState, JobStatus
from plexrl.runtime.client import Cluster

ALONE = "-alone"
"""Suffix of the name a job has in the cluster while it runs alone."""


@dataclass(frozen=True, slots=True)
class AloneRun:
    """One job that ran alone."""

    ran: Ran
    status: JobStatus
    weights_sha256: str


def as_alone(job: JobSpec) -> JobSpec:
    """The job under the name it has while it runs alone."""
    return replace(job, name=job.name + ALONE)


def hash_of(cluster: Cluster, status: JobStatus, folder: str | None = None) -> str:
    """SHA-256 of a job's final weights; also written to `folder` if one is given.

    Returns
    -------
    str
        Empty if the job did not finish: it has no final weights.
    """
    if status.state is not JobState.FINISHED:
        return ""
    run = cluster.run(status.name)
    if folder is not None:
        return run.export(folder)
    with tempfile.TemporaryDirectory(prefix="plexrl-") as scratch:
        return run.export(scratch)


def finish(
    cluster: Cluster,
    jobs: Sequence[JobSpec],
    shared: Ran,
    alone: Mapping[str, AloneRun],
    output: OutputFolder,
    *,
    seed: int,
    title: str,
) -> Report:
    """Export the models, put the report together and write the output folder.

    Parameters
    ----------
    cluster
        Where the jobs ran; it still holds their states.
    jobs
        The jobs.
    shared, alone
        How they ran together; job → how it ran alone.
    output
        Where everything goes.
    seed
        What to state as the seed.
    title
        Heading of the timeline.
    """
    models = {job.name: str(output.model(job.name)) for job in jobs}
    hashes = {name: hash_of(cluster, shared.statuses[name], models[name]) for name in models}
    outcomes = [_outcome(job, shared, alone.get(job.name), hashes[job.name]) for job in jobs]
    report = compare(
        outcomes,
        shared=shared.stretch,
        alone={name: run.ran.stretch for name, run in alone.items()},
        plan=shared.plan,
        machine=this_machine(),
        seed=seed,
    )
    _write(output, shared, alone, report, title)
    return report


def _outcome(job: JobSpec, shared: Ran, alone: AloneRun | None, sha256: str) -> JobOutcome:
    return JobOutcome(
        name=job.name,
        description=job.description,
        shared=shared.statuses[job.name],
        weights_sha256_shared=sha256,
        alone=None if alone is None else alone.status,
        weights_sha256_alone="" if alone is None else alone.weights_sha256,
        alone_name=job.name + ALONE,
    )


def _write(
    output: OutputFolder,
    shared: Ran,
    alone: Mapping[str, AloneRun],
    report: Report,
    title: str,
) -> None:
    names = {name + ALONE: name for name in alone}
    stretches = [run.ran.stretch for run in alone.values()]
    output.write_json("plan.json", shared.plan_json)
    output.write_json("report.json", report.to_json())
    output.write_metrics(
        {
            "alone": [record for stretch in stretches for record in stretch.iterations],
            "shared": (*shared.earlier, *shared.stretch.iterations),
        },
        names,
    )
    output.write_leases(
        {
            "alone": [lease for stretch in stretches for lease in stretch.leases],
            "shared": shared.stretch.leases,
        },
        names,
    )
    output.write_timeline(
        shared.stretch.leases,
        shared.stretch.iterations,
        shared.plans,
        title=title,
        subtitle=f"{report.machine}; seed {report.seed}",
    )
