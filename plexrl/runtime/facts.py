"""What the cluster must know of a job, found out where it is submitted."""

from __future__ import annotations

from dataflow.checking import check_job
from dataflow.errors import DataflowError
from dataflow.jobs import JobSpec
from plexrl.core.jobs import JobFacts, OpHint
from plexrl.core.placement import Arrangement
from plexrl.engines.folders import check_folder, state_bytes
from plexrl.errors import JobError
from plexrl.ids import check_job_name
from plexrl.runtime.attaching import attach_options


def job_facts(job: JobSpec) -> JobFacts:
    """Check a job and find out what the cluster must know of it.

    Raises
    ------
    InputError
        The job or one of its model folders is wrong.
    """
    check_job_name(job.name)
    try:
        ops = check_job(job)
    except DataflowError as error:
        raise JobError(f"{error}") from error
    memory_bytes = copy_bytes = 0
    for model in job.models.values():
        check_folder(model.folder)
        weights_bytes = state_bytes(model.folder, False, model.head, model.lora)
        # Beside the versions in use the next one arrives.
        copy_bytes += (2 + job.staleness if model.is_trainable else 1) * weights_bytes
        # A train function commits beside the version it started from.
        num_copies = 2 if model.is_trainable else 1
        memory_bytes += num_copies * state_bytes(
            model.folder, model.is_trainable, model.head, model.lora
        )
    return JobFacts(
        name=job.name,
        ops=tuple(OpHint(op.op, op.hint_s, op.wait_hint_s) for op in ops),
        memory_bytes=memory_bytes,
        iterations=job.iterations,
        slowdown_limit=job.slowdown_limit,
        weight=job.weight,
        models=attach_options(job),
        description=job.description,
        arrangement=Arrangement(job.arrangement),
        pins=dict(job.groups),
        copy_bytes=copy_bytes,
        staleness=job.staleness,
    )
