"""Checks a job before anything starts, and says what its iterations are made of."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from dask.delayed import Delayed

from dataflow.calls import VersionToken
from dataflow.errors import PipelineError
from dataflow.evaluating import evaluation_nodes
from dataflow.inspect import critical_path, graph_of, llm_nodes
from dataflow.iteration import RESERVED_NAMES, build_iteration
from dataflow.jobs import ARRANGEMENTS, ROLLOUT_ENGINES, JobSpec
from dataflow.stepping import Compute, PipelineRun, Step

WAIT_PREFIX = "wait:"
"""Prefix of hints that state the seconds without a group after an op."""

_JOB_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_MODEL_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,63}")


@dataclass(frozen=True, slots=True)
class PlannedOp:
    """One LLM function on the critical path, as plans see it before anything was measured."""

    op: str
    """Name of the call within an iteration, e.g. ``actor.rollout.0``."""
    hint_s: float | None
    """Expected seconds under a lease; None if the job does not say."""
    wait_hint_s: float | None
    """Expected seconds without a group after it (tools, judges); None if the job does not say."""


def first_step(job: JobSpec) -> Step:
    """Build a job's first iteration on placeholder tokens, up to the first value it needs.

    Raises
    ------
    PipelineError
        The pipeline is wrong.
    DataError
        The prompt source is unusable.
    """
    tokens = {name: VersionToken(job.name, name, 0, "") for name in job.models}
    iteration = build_iteration(job, 0, cursor=0, tokens=tokens, versions=dict.fromkeys(tokens, 0))
    run = PipelineRun(job, iteration)
    step = run.start()
    run.close()
    return step


def nodes_of(step: Step) -> tuple[Delayed, ...]:
    """Nodes that a step asks for."""
    return (step.node,) if isinstance(step, Compute) else step.outputs


def check_job(job: JobSpec) -> tuple[PlannedOp, ...]:
    """Validate a job and build its first iteration on placeholder tokens.

    Parameters
    ----------
    job
        The job; nothing of it is started.

    Returns
    -------
    tuple of PlannedOp
        LLM functions along the critical path in order. For a generator pipeline those of its
        first segment, then those that only the hints name.

    Raises
    ------
    PipelineError
        The specification or the pipeline is wrong.
    DataError
        The prompt source is unusable.
    """
    _check_names(job)
    _check_numbers(job)
    _check_arrangement(job)
    _check_hints(job)
    _check_evaluation(job)
    step = first_step(job)
    graph = graph_of(nodes_of(step))
    path = critical_path(graph).nodes
    ops = [str(graph.nodes[name]["op"]) for name in llm_nodes(graph, path)]
    built = {str(graph.nodes[name]["op"]) for name in llm_nodes(graph)}
    hinted = dict.fromkeys(key.removeprefix(WAIT_PREFIX) for key in job.hints_s)
    unseen = [op for op in hinted if op not in built]
    if isinstance(step, Compute):
        ops += unseen
    elif unseen:
        raise PipelineError(
            f"job {job.name!r} has a hint for {unseen[0]!r}, which its pipeline does not call; its "
            f"calls are {', '.join(sorted(built))}"
        )
    return tuple(
        PlannedOp(op, job.hints_s.get(op), job.hints_s.get(f"{WAIT_PREFIX}{op}")) for op in ops
    )


def _check_names(job: JobSpec) -> None:
    """Names that end up in paths, keys and attributes."""
    if not isinstance(job.name, str) or not _JOB_NAME.fullmatch(job.name):
        raise PipelineError(
            f"job name {job.name!r} is not usable; take up to 64 letters, digits, '-', '_' and "
            "'.', beginning with a letter or digit"
        )
    if not job.models:
        raise PipelineError(f"job {job.name!r} has no model; give at least one in JobSpec.models")
    for name, spec in job.models.items():
        if not isinstance(name, str) or not _MODEL_NAME.fullmatch(name) or name in RESERVED_NAMES:
            raise PipelineError(
                f"job {job.name!r}: model name {name!r} is not usable; take a name of letters, "
                f"digits and '_' that is none of {', '.join(sorted(RESERVED_NAMES))}"
            )
        if not spec.folder:
            raise PipelineError(
                f"job {job.name!r}: model {name!r} has no folder; give the Hugging Face folder of "
                "its first version"
            )
        if spec.rollout_engine not in ROLLOUT_ENGINES:
            raise PipelineError(
                f"job {job.name!r}: model {name!r} has the rollout engine {spec.rollout_engine!r}; "
                f"give one of {', '.join(ROLLOUT_ENGINES)}"
            )
    if not any(spec.is_trainable for spec in job.models.values()):
        raise PipelineError(
            f"job {job.name!r} has only frozen models; declare one with is_trainable=True"
        )
    if not callable(job.pipeline):
        raise PipelineError(
            f"job {job.name!r}: pipeline is {type(job.pipeline).__name__}, which cannot be called; "
            "give a function of one argument, the iteration"
        )


def _check_numbers(job: JobSpec) -> None:
    """Counts and limits."""
    whole: Sequence[tuple[str, object, int]] = (
        ("iterations", job.iterations, 1),
        ("num_prompts", job.num_prompts, 1),
        ("staleness", job.staleness, 0),
        ("keep_samples", job.keep_samples, 0),
        ("commit.every_iterations", job.commit.every_iterations, 1),
        ("max_steps", job.max_steps, 1),
    )
    for name, value, least in whole:
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise PipelineError(
                f"job {job.name!r}: {name} is {value!r}; give a whole number of at least {least}"
            )
    if not isinstance(job.seed, int) or isinstance(job.seed, bool):
        raise PipelineError(f"job {job.name!r}: seed is {job.seed!r}; give a whole number")
    if not _is_number(job.slowdown_limit) or job.slowdown_limit < 1:
        raise PipelineError(
            f"job {job.name!r}: slowdown_limit is {job.slowdown_limit!r}; it is mean iteration "
            "time shared ÷ alone, so give a number of at least 1"
        )
    if not _is_number(job.weight) or job.weight <= 0:
        raise PipelineError(f"job {job.name!r}: weight is {job.weight!r}; give a number above 0")


def _check_arrangement(job: JobSpec) -> None:
    """Where its phases run."""
    if job.arrangement not in ARRANGEMENTS:
        raise PipelineError(
            f"job {job.name!r}: arrangement is {job.arrangement!r}; give one of "
            f"{', '.join(ARRANGEMENTS)}"
        )
    if job.arrangement == "asynchronous" and job.staleness < 1:
        raise PipelineError(
            f"job {job.name!r}: arrangement is 'asynchronous' with staleness {job.staleness}; give "
            "a staleness of at least 1, or take 'split'"
        )


def _check_hints(job: JobSpec) -> None:
    """Hints are expected seconds by op."""
    for op, seconds in job.hints_s.items():
        if not _is_number(seconds) or seconds < 0:
            raise PipelineError(
                f"job {job.name!r}: hint for {op!r} is {seconds!r}; give expected seconds, at "
                "least 0"
            )


def _check_evaluation(job: JobSpec) -> None:
    """An evaluation asks a model of the job, with numbers in range."""
    evaluation = job.evaluation
    if evaluation is None:
        return
    where = f"job {job.name!r}: evaluation"
    if evaluation.model not in job.models:
        raise PipelineError(
            f"{where}.model is {evaluation.model!r}; name one of the job's models: "
            f"{', '.join(map(repr, job.models))}"
        )
    for name, least in (("every_iterations", 1), ("num_prompts", 1), ("patience", 1)):
        value = getattr(evaluation, name)
        if value is not None and (not isinstance(value, int) or value < least):
            raise PipelineError(
                f"{where}.{name} is {value!r}; give a whole number of at least {least}"
            )
    for name in ("min_gain", "target"):
        value = getattr(evaluation, name)
        if value is not None and not _is_number(value):
            raise PipelineError(f"{where}.{name} is {value!r}; give a finite number")
    tokens = {name: VersionToken(job.name, name, 0, "") for name in job.models}
    evaluation_nodes(job, evaluation, 0, tokens=tokens, versions=dict.fromkeys(tokens, 0))


def _is_number(value: object) -> bool:
    """Whether `value` is a finite number."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    return math.isfinite(value)
