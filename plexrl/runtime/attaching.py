"""How the models of a job are opened on its group: LLM functions outside any iteration."""

from __future__ import annotations

from collections.abc import Mapping

import dask
from dask.delayed import Delayed, delayed

from dataflow.annotations import ANNOTATION, annotation_of
from dataflow.calls import AttachOptions, LLMCall, run_call
from dataflow.jobs import JobSpec
from dataflow.keys import node_key
from dataflow.phases import Phase

NO_ITERATION = -1
"""Iteration of calls outside any iteration: opening a model, exporting it."""


def attach_nodes(spec: JobSpec, job: str, attempt: int, run: str) -> Mapping[str, Delayed]:
    """Model → node that opens it.

    Parameters
    ----------
    spec
        The job.
    job
        Its name in the cluster.
    attempt
        How often it went back so far.
    run
        Of which life of the job's driver the node is.
    """
    nodes = {}
    for name, options in attach_options(spec).items():
        call = LLMCall(
            job=job,
            model=name,
            function=Phase.SYNC,
            iteration=NO_ITERATION,
            turn=0,
            version=0,
            seed=spec.seed,
            options=options,
            attempt=attempt,
        )
        key = node_key("attach", job=job, iteration=0, attempt=attempt, model=name, run=run)
        with dask.annotate(**{ANNOTATION: annotation_of(call)}):
            nodes[name] = delayed(run_call, pure=False)(call, None, dask_key_name=key)
    return nodes


def attach_options(spec: JobSpec) -> dict[str, AttachOptions]:
    """How the models of a job are opened on its group."""
    num_trainable = sum(model.is_trainable for model in spec.models.values())
    return {
        name: AttachOptions(
            model.folder,
            model.is_trainable,
            spec.commit.every_iterations,
            # A crash between the commits of two models replays the iteration, which asks for
            # the version before the one that did commit.
            num_versions=1 + spec.staleness + (1 if num_trainable > 1 else 0),
            head=model.head,
            rollout_engine=model.rollout_engine,
            start=spec.start if model.is_trainable else None,
            lora=model.lora,
        )
        for name, model in spec.models.items()
    }
