"""Whether what a job shall start from is still there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from distributed import Client

from dataflow.jobs import JobSpec
from dataflow.starts import StartVersion
from plexrl.errors import JobError
from plexrl.ids import check_job_name
from plexrl.runtime.asking import ask_workers
from plexrl.runtime.gate import group_of
from plexrl.state.store import Store

PLUGIN = "plexrl"
"""Name of the worker plugin."""

Stored = Mapping[str, tuple[int, ...]]
"""Model → its versions in a store, oldest first."""


def trainable_models(job: JobSpec) -> tuple[str, ...]:
    """Models of a job that a start version must have."""
    return tuple(name for name, model in job.models.items() if model.is_trainable)


def stored_versions(store: Store, job: str, models: Iterable[str]) -> Stored:
    """Versions of a job's models in a store."""
    return {model: store.versions(job, model) for model in models}


def check_start(start: StartVersion, stored: Stored) -> None:
    """Refuse a start that is not in the store.

    Raises
    ------
    JobError
        A model has no such version; the message says which there are, and how to keep more.
    """
    check_job_name(start.job)
    for model, versions in stored.items():
        if not versions:
            raise JobError(
                f"nothing in the store starts a job from {start}: it holds no version of "
                f"{start.job}/{model}; look with 'plexrl store ls'"
            )
        if start.version not in versions:
            raise JobError(
                f"{start.job}/{model} has no version {start.version} in the store (there: "
                f"{', '.join(map(str, versions))}): it was collected, is not written yet or never "
                "was. More stay with plexrl.state.keep_durable, and with Commit(every_iterations=1)"
            )


def check_start_in_cluster(client: Client, job: JobSpec) -> None:
    """Let the worker of a group look whether the job's start is in the store.

    Raises
    ------
    JobError
        It is not.
    """
    if job.start is None:
        return
    workers = client.scheduler_info(n_workers=-1)["workers"]
    groups = sorted(a for a, worker in workers.items() if group_of(worker["resources"]) is not None)
    models = trainable_models(job)
    for group in groups:
        # One that goes before it answers says nothing; any of them knows.
        for found in ask_workers(
            client, _stored_there, job.start, models, workers=[group]
        ).values():
            check_start(job.start, found)
            return


def _stored_there(
    start: StartVersion,
    models: tuple[str, ...],
    dask_worker: Any,
) -> Stored:
    found: Stored = dask_worker.plugins[PLUGIN].stored(start, models)
    return found
