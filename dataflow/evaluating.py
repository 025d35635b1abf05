"""The graph of one evaluation: sampling under a lease, then an ordinary reward node."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from dask.delayed import Delayed

from dataflow import rewards
from dataflow.datasets import JsonlPrompts, PromptSource, RecordPrompts
from dataflow.episodes import episodes
from dataflow.errors import PipelineError, UnknownNameError
from dataflow.evaluation import Evaluation
from dataflow.iteration import build_iteration, draw_prompts
from dataflow.jobs import JobSpec
from dataflow.keys import stream_seed
from dataflow.phases import Phase
from dataflow.samples import Prompt
from dataflow.tasks import Task

STREAM = "evaluation"
"""Stream of the draws of evaluations at temperatures above 0, and of generated prompts."""

OPTIONS = (
    "every_iterations",
    "min_gain",
    "num_prompts",
    "num_samples",
    "patience",
    "prompts",
    "reward",
    "target",
    "temperature",
)
"""Fields of an `Evaluation` that a task does not decide, or need not."""


def evaluation_of(task: Task, seed: int, options: Mapping[str, Any]) -> Evaluation:
    """The evaluation of a task, with what the user says of it.

    Parameters
    ----------
    task
        Gives the reward, the environment, the limits, and prompts from another seed than the
        job's.
    seed
        Of the job.
    options
        Values of `OPTIONS`.

    Raises
    ------
    UnknownNameError
        An option does not exist.
    PipelineError
        The task reads a fixed data set and no prompts are given.
    """
    for name in options:
        if name not in OPTIONS:
            raise UnknownNameError(
                f"an evaluation has no option {name!r}; its options are {', '.join(OPTIONS)}"
            )
    given = dict(options)
    if "prompts" not in given:
        given["prompts"] = _held_out(task, seed)
    given.setdefault("reward", task.reward(seed))
    return Evaluation(
        max_new_tokens=task.max_new_tokens,
        stop=task.stop,
        environment=task.environment(seed) if task.environment else None,
        num_tool_turns=task.num_tool_turns,
        **given,
    )


def _held_out(task: Task, seed: int) -> PromptSource:
    """Prompts that a task holds out, or generates from another seed."""
    if task.held_out is not None:
        return task.held_out(seed)
    found = task.prompts(stream_seed(seed, STREAM))
    if isinstance(found, (RecordPrompts, JsonlPrompts)):
        raise PipelineError(
            f"task {task.name!r} reads a fixed data set, so nothing of it is held out; give the "
            "evaluation prompts of its own"
        )
    return found


@dataclass(frozen=True, slots=True)
class HeldOut:
    """Prompts that were drawn: a source that asks nobody."""

    prompts: tuple[Prompt, ...]

    def batch(self, cursor: int, count: int) -> tuple[Prompt, ...]:
        """Prompts ``cursor … cursor + count - 1``, as far as they were drawn."""
        return self.prompts[cursor : cursor + count]


def at_hand(job: JobSpec, evaluation: Evaluation) -> Evaluation:
    """An evaluation with its prompts drawn, which are the same every time.

    Raises
    ------
    DataError
        The prompt source did not give the prompts it was asked for.
    """
    asked = replace(job, prompts=evaluation.prompts, num_prompts=evaluation.num_prompts)
    return replace(evaluation, prompts=HeldOut(draw_prompts(asked, 0)))


def evaluation_nodes(
    job: JobSpec,
    evaluation: Evaluation,
    index: int,
    *,
    tokens: Mapping[str, object],
    versions: Mapping[str, int],
    attempt: int = 0,
    run: str = "",
) -> tuple[Delayed, Delayed]:
    """Nodes of the samples and of the rewards of an evaluation.

    Parameters
    ----------
    job, evaluation
        Whose evaluation.
    index
        Iteration it comes after.
    tokens, versions
        Model → token, or node or future of one, and version it is evaluated at.
    attempt, run
        As for `dataflow.iteration.build_iteration`.

    Raises
    ------
    DataError
        The prompt source did not give the prompts it was asked for.
    """
    asked = replace(
        job,
        prompts=evaluation.prompts,
        num_prompts=evaluation.num_prompts,
        seed=stream_seed(job.seed, STREAM),
    )
    it = build_iteration(
        asked,
        index,
        cursor=0,
        tokens=tokens,
        versions=versions,
        attempt=attempt,
        run=run,
        sampling=Phase.EVALUATE,
    )
    samples = episodes(it, it.prompts, evaluation, model=evaluation.model)
    judged = rewards.node(
        evaluation.reward, samples, iteration=index, key=it.key("evaluation_reward")
    )
    it.close()
    return samples, judged
