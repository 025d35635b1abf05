"""Checks a job before anything starts, and says what its iterations are made of."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dask.delayed import Delayed

from dataflow.calls import VersionToken
from dataflow.environments import Environment
from dataflow.errors import PipelineError
from dataflow.evaluating import evaluation_nodes
from dataflow.evaluation import Evaluation
from dataflow.inspect import critical_path, graph_of, llm_nodes
from dataflow.iteration import RESERVED_NAMES, build_iteration
from dataflow.jobs import (
    ARRANGEMENTS,
    HEADS,
    ROLLOUT_ENGINES,
    Commit,
    JobSpec,
    ModelSpec,
    TrackerSpec,
)
from dataflow.ranges import RANGES
from dataflow.starts import StartVersion
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
    _check_kinds(job)
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


def _check_kinds(job: JobSpec) -> None:
    """Values are of the kinds that the fields say."""
    trackers = job.trackers if isinstance(job.trackers, (tuple, list)) else (None,)
    kinds: Sequence[tuple[str, object, bool, str]] = (
        ("models", job.models, _maps_to(job.models, ModelSpec), "a mapping of names to ModelSpec"),
        ("hints_s", job.hints_s, _maps_to(job.hints_s, object), "a mapping of ops to seconds"),
        ("groups", job.groups, _maps_to(job.groups, str), "a mapping of phases to names of groups"),
        ("commit", job.commit, isinstance(job.commit, Commit), "a Commit"),
        (
            "evaluation",
            job.evaluation,
            job.evaluation is None or isinstance(job.evaluation, Evaluation),
            "an Evaluation, or a mapping of its fields to `grpo`",
        ),
        (
            "trackers",
            job.trackers,
            all(isinstance(tracker, TrackerSpec) for tracker in trackers),
            "a sequence of TrackerSpec, or of their names to `grpo`",
        ),
        (
            "start",
            job.start,
            job.start is None or isinstance(job.start, StartVersion),
            "a StartVersion",
        ),
        ("description", job.description, isinstance(job.description, str), "one line of text"),
        ("name", job.name, isinstance(job.name, str), "a text"),
    )
    for name, value, is_met, wanted in kinds:
        if not is_met:
            raise PipelineError(f"job {job.name!r}: {name} is {value!r}; give {wanted}")


def _maps_to(value: object, kind: type) -> bool:
    """Whether a value is a mapping from text to `kind`."""
    return isinstance(value, Mapping) and all(
        isinstance(key, str) and isinstance(item, kind) for key, item in value.items()
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
        _check_model(job.name, name, spec)
    if not any(spec.is_trainable for spec in job.models.values()):
        raise PipelineError(
            f"job {job.name!r} has only frozen models; declare one with is_trainable=True"
        )
    if not callable(job.pipeline):
        raise PipelineError(
            f"job {job.name!r}: pipeline is {type(job.pipeline).__name__}, which cannot be called; "
            "give a function of one argument, the iteration"
        )


def _check_model(job: str, name: str, spec: ModelSpec) -> None:
    """One model."""
    if not isinstance(name, str) or not _MODEL_NAME.fullmatch(name) or name in RESERVED_NAMES:
        raise PipelineError(
            f"job {job!r}: model name {name!r} is not usable; take a name of letters, "
            f"digits and '_' that is none of {', '.join(sorted(RESERVED_NAMES))}"
        )
    if not (isinstance(spec.folder, str) and spec.folder):
        raise PipelineError(
            f"job {job!r}: model {name!r} has the folder {spec.folder!r}; give the path "
            "of the Hugging Face folder of its first version"
        )
    if not isinstance(spec.is_trainable, bool):
        raise PipelineError(
            f"job {job!r}: model {name!r} has is_trainable={spec.is_trainable!r}; give "
            "True or False"
        )
    if spec.head not in HEADS:
        raise PipelineError(
            f"job {job!r}: model {name!r} has the head {spec.head!r}; give one of "
            f"{', '.join(HEADS)}"
        )
    if spec.rollout_engine not in ROLLOUT_ENGINES:
        raise PipelineError(
            f"job {job!r}: model {name!r} has the rollout engine {spec.rollout_engine!r}; "
            f"give one of {', '.join(ROLLOUT_ENGINES)}"
        )


def _check_numbers(job: JobSpec) -> None:
    """Counts and limits."""
    for name in ("iterations", "num_prompts", "staleness", "keep_samples", "max_steps", "seed"):
        _check_range(f"job {job.name!r}: {name}", name, getattr(job, name))
    every = job.commit.every_iterations
    _check_range(f"job {job.name!r}: commit.every_iterations", "every_iterations", every)
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
    if not isinstance(evaluation.model, str) or evaluation.model not in job.models:
        raise PipelineError(
            f"{where}.model is {evaluation.model!r}; name one of the job's models: "
            f"{', '.join(map(repr, job.models))}"
        )
    for name in ("every_iterations", "num_prompts", "patience", "num_tool_turns"):
        _check_range(f"{where}.{name}", name, getattr(evaluation, name))
    for name in ("min_gain", "target"):
        value = getattr(evaluation, name)
        if not _is_number(value) and (name, value) != ("target", None):
            raise PipelineError(f"{where}.{name} is {value!r}; give a finite number")
    environment = evaluation.environment
    if environment is not None and not isinstance(environment, Environment):
        raise PipelineError(
            f"{where}.environment is {environment!r}; give one of dataflow.environments, or None"
        )
    tokens = {name: VersionToken(job.name, name, 0, "") for name in job.models}
    evaluation_nodes(job, evaluation, 0, tokens=tokens, versions=dict.fromkeys(tokens, 0))


def _check_range(what: str, name: str, value: object) -> None:
    """Raise unless a number is one that its setting may have."""
    if value not in RANGES[name]:
        raise PipelineError(f"{what} is {value!r}; give {RANGES[name]}")


def _is_number(value: object) -> bool:
    """Whether `value` is a finite number."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    return math.isfinite(value)
