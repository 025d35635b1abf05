"""The annotation of an LLM node: what the scheduler plugin reads.

It rides on Dask's own annotations under one key, as plain types, so that it survives
serialisation by any Dask version.
"""

from __future__ import annotations

from collections.abc import Mapping

from dataflow.calls import LLMCall
from dataflow.errors import PipelineError
from dataflow.phases import Phase

ANNOTATION = "plexrl"
"""Key under which the annotation stands among Dask's."""

_FIELDS: dict[str, type] = {
    "job": str,
    "model": str,
    "function": str,
    "iteration": int,
    "turn": int,
    "version": int,
    "attempt": int,
    "op": str,
}


def annotation_of(call: LLMCall) -> dict[str, object]:
    """Annotation of a call: job, model, function, iteration, turn, version, attempt, op, hint."""
    return {
        "job": call.job,
        "model": call.model,
        "function": str(call.function),
        "iteration": call.iteration,
        "turn": call.turn,
        "version": call.version,
        "attempt": call.attempt,
        "op": call.op,
        "hint_s": call.hint_s,
    }


def read_annotation(annotations: Mapping[str, object] | None) -> dict[str, object] | None:
    """The plexrl annotation of a task, or None if it has none.

    Raises
    ------
    PipelineError
        The annotation is there but malformed.
    """
    found = (annotations or {}).get(ANNOTATION)
    if found is None:
        return None
    if not isinstance(found, Mapping):
        raise PipelineError(
            f"annotation {ANNOTATION!r} is {found!r}; build LLM nodes with the handles of a job "
            "(job.actor.generate, logprobs, train, sync) instead of annotating by hand"
        )
    for name, kind in _FIELDS.items():
        if not isinstance(found.get(name), kind):
            raise PipelineError(
                f"annotation {ANNOTATION!r} has {name}={found.get(name)!r}, not {kind.__name__}; "
                "build LLM nodes with the handles of a job instead of annotating by hand"
            )
    if found["function"] not in {str(phase) for phase in Phase if phase.is_llm}:
        raise PipelineError(
            f"annotation {ANNOTATION!r} names no LLM function: {found['function']!r}"
        )
    return dict(found)
