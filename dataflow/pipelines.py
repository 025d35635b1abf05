"""The built-in pipeline: GRPO on one actor, with or without tool turns."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dask.delayed import Delayed

from dataflow import advantages, environments, scoring, tasks
from dataflow.advantages import Estimator
from dataflow.calls import Loss
from dataflow.environments import Environment
from dataflow.errors import PipelineError, UnknownNameError
from dataflow.iteration import Iteration
from dataflow.jobs import Commit, JobSpec, ModelSpec
from dataflow.models import ModelHandle
from dataflow.rewards import Judge, Verifier
from dataflow.samples import Prompt
from dataflow.tasks import Task


@dataclass(frozen=True, slots=True)
class GrpoSettings:
    """What the built-in pipeline does in every iteration."""

    reward: str | Verifier | Judge
    environment: Environment | None = None
    num_tool_turns: int = 0
    """Rollout turns after the first, each after one step of the environment."""
    num_samples: int = 8
    """Samples per prompt."""
    max_new_tokens: int = 8
    """Limit of tokens per turn."""
    temperature: float = 1.0
    stop: tuple[str, ...] = ()
    advantage: str | Estimator = "grpo_batch"
    loss: str | Loss = "grpo"
    lr: float = 2e-4
    """Step size of the first iteration."""
    lr_schedule: str = "linear"
    """``linear``: falls to 0 over the job; ``constant``."""
    betas: tuple[float, float] = (0.9, 0.95)
    weight_decay: float = 0.0
    max_grad_norm: float = 1.0
    clip_low: float = 0.2
    clip_high: float = 0.28
    num_epochs: int = 1
    num_minibatches: int = 1


@dataclass(frozen=True, slots=True)
class GrpoPipeline:
    """GRPO (arXiv 2402.03300) as a pipeline: rollout, tool turns, scores, train."""

    settings: GrpoSettings

    def __call__(self, it: Iteration) -> Delayed:
        """Nodes of one iteration; the train node."""
        return grpo_pipeline(it, self.settings)


def grpo_pipeline(it: Iteration, settings: GrpoSettings) -> Delayed:
    """Build one GRPO iteration on the model ``actor``.

    Parameters
    ----------
    it
        The iteration; its prompts are the batch.
    settings
        What to do.

    Returns
    -------
    Delayed
        The train node.
    """
    actor = it.models["actor"]
    samples = _generate(actor, it.prompts, settings)
    if settings.environment is not None:
        for turn in range(settings.num_tool_turns):
            key = it.key("tool", turn=turn)
            answered = environments.node(settings.environment, samples, iteration=it.index, key=key)
            samples = _generate(actor, answered, settings)
    scored = scoring.node(
        settings.reward,
        settings.advantage,
        samples,
        iteration=it.index,
        key=it.key("reward"),
    )
    is_linear = settings.lr_schedule == "linear"
    return actor.train(
        samples,
        scored,
        loss=settings.loss,
        lr=settings.lr * (1 - it.fraction_done if is_linear else 1),
        betas=settings.betas,
        weight_decay=settings.weight_decay,
        max_grad_norm=settings.max_grad_norm,
        clip_low=settings.clip_low,
        clip_high=settings.clip_high,
        temperature=settings.temperature,
        num_epochs=settings.num_epochs,
        num_minibatches=settings.num_minibatches,
    )


def grpo(
    *,
    model: str,
    task: str | Task,
    iterations: int,
    name: str | None = None,
    seed: int = 0,
    task_options: Mapping[str, object] | None = None,
    num_prompts: int | None = None,
    num_samples: int | None = None,
    max_new_tokens: int | None = None,
    slowdown_limit: float = 2.0,
    weight: float = 1.0,
    staleness: int = 0,
    commit_every: int = 1,
    hints_s: Mapping[str, float] | None = None,
    **settings: object,
) -> JobSpec:
    """Job that trains one model on one task with GRPO.

    Parameters
    ----------
    model
        Hugging Face folder of the first version.
    task
        Registered name, or a task of one's own.
    iterations
        How many iterations to run.
    name
        Name of the job; the task's by default.
    seed
        Every draw of the job is a function of it.
    task_options
        Options of a registered task, e.g. ``{"length": 6}``.
    num_prompts, num_samples, max_new_tokens
        Prompts per iteration, samples per prompt, tokens per turn; the task's by default.
    slowdown_limit, weight, staleness
        See `dataflow.jobs.JobSpec`.
    commit_every
        Every N-th version is made durable.
    hints_s
        Expected seconds by op; the task's by default, which hold for the tiny base model.
    **settings
        Fields of `GrpoSettings`: advantage, loss, lr, lr_schedule, temperature, betas,
        weight_decay, max_grad_norm, clip_low, clip_high, num_epochs, num_minibatches.

    Returns
    -------
    JobSpec
        To be given to ``cluster.submit``.

    Raises
    ------
    UnknownNameError
        A task, option, setting or advantage has a name that nobody registered.
    DataError
        An option of the task is out of range.
    PipelineError
        A setting is out of range.
    """
    chosen = tasks.task(task, **(task_options or {})) if isinstance(task, str) else task
    _check_settings(settings)
    fixed = _task_settings(chosen, seed, num_samples, max_new_tokens)
    return JobSpec(
        name=chosen.name if name is None else name,
        models={"actor": ModelSpec(str(model))},
        pipeline=GrpoPipeline(GrpoSettings(**{**fixed, **settings})),  # type: ignore[arg-type]
        iterations=iterations,
        seed=seed,
        slowdown_limit=slowdown_limit,
        weight=weight,
        staleness=staleness,
        prompts=chosen.prompts(seed),
        num_prompts=chosen.num_prompts if num_prompts is None else num_prompts,
        commit=Commit(every_iterations=commit_every),
        hints_s=dict(chosen.hints_s if hints_s is None else hints_s),
        description=chosen.description,
    )


SETTINGS = (
    "advantage",
    "betas",
    "clip_high",
    "clip_low",
    "loss",
    "lr",
    "lr_schedule",
    "max_grad_norm",
    "num_epochs",
    "num_minibatches",
    "temperature",
    "weight_decay",
)
"""Settings of `grpo` that tasks leave to the user."""

_AT_LEAST = {
    "clip_high": 0.0,
    "clip_low": 0.0,
    "lr": 0.0,
    "max_grad_norm": 0.0,
    "num_epochs": 1.0,
    "num_minibatches": 1.0,
    "temperature": 0.0,
    "weight_decay": 0.0,
}


def _task_settings(
    task: Task, seed: int, num_samples: int | None, max_new_tokens: int | None
) -> dict[str, object]:
    """Settings of the pipeline that a task decides, where the user does not."""
    return {
        "reward": task.reward(seed),
        "environment": task.environment(seed) if task.environment else None,
        "num_tool_turns": task.num_tool_turns,
        "stop": task.stop,
        "num_samples": task.num_samples if num_samples is None else num_samples,
        "max_new_tokens": task.max_new_tokens if max_new_tokens is None else max_new_tokens,
    }


def _check_settings(settings: Mapping[str, object]) -> None:
    """Raise on settings that do not exist or are out of range."""
    for name, value in settings.items():
        if name not in SETTINGS:
            raise UnknownNameError(
                f"grpo has no setting {name!r}; its settings are {', '.join(SETTINGS)}"
            )
        if name in _AT_LEAST:
            least = _AT_LEAST[name]
            is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
            if not is_number or not math.isfinite(value) or value < least:  # type: ignore[arg-type,operator]
                raise PipelineError(
                    f"grpo: {name} is {value!r}; give a number of at least {least:g}"
                )
    if isinstance(found := settings.get("advantage"), str):
        advantages.resolve(found)
    schedule = settings.get("lr_schedule", "linear")
    if schedule not in {"linear", "constant"}:
        raise UnknownNameError(
            f"grpo has no lr_schedule {schedule!r}; known are 'linear' and 'constant'"
        )


def _generate(
    actor: ModelHandle, inputs: Sequence[Prompt] | Delayed, settings: GrpoSettings
) -> Delayed:
    """One rollout turn."""
    return actor.generate(
        inputs,
        n=settings.num_samples,
        max_new_tokens=settings.max_new_tokens,
        temperature=settings.temperature,
        stop=settings.stop,
    )
