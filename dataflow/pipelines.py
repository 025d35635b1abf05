"""The built-in pipeline: policy gradients on one actor, with or without tools and a critic."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dask.delayed import Delayed

from dataflow import advantages, dynamic_sampling, rewards, scoring, tasks
from dataflow.algorithms import GAE, SETTINGS, GrpoSettings, settings_of
from dataflow.calls import FurtherTrainOptions
from dataflow.dynamic_sampling import Judged
from dataflow.episodes import episodes
from dataflow.errors import PipelineError
from dataflow.evaluating import evaluation_of
from dataflow.iteration import Iteration
from dataflow.jobs import Commit, JobSpec, ModelSpec, TrackerSpec
from dataflow.lora import LoraSpec
from dataflow.nodes import Scored
from dataflow.ranges import RANGES
from dataflow.rewards import Judge, OverlongPenalty, Verifier
from dataflow.samples import Sample
from dataflow.schedules import learning_rate
from dataflow.tasks import Task

__all__ = ["SETTINGS", "GrpoPipeline", "GrpoSettings", "grpo", "grpo_pipeline"]


LOOKS = ("evaluation", "keep_samples", "trackers")
PLACES = ("arrangement", "groups")
"""Settings of `grpo` that say how to look at a job, not what it does."""


@dataclass(frozen=True, slots=True)
class GrpoPipeline:
    """Rollout, tool turns, scores, train: GRPO (arXiv 2402.03300) and its relatives."""

    settings: GrpoSettings

    def __call__(self, it: Iteration) -> object:
        """Nodes of one iteration: the train nodes, or a generator that ends with them."""
        if self.settings.dynamic_rounds > 1:
            return _dynamic_pipeline(it, self.settings)
        return grpo_pipeline(it, self.settings)


def grpo_pipeline(it: Iteration, settings: GrpoSettings) -> Delayed | tuple[Delayed, Delayed]:
    """Build one iteration on the model ``actor``.

    Parameters
    ----------
    it
        The iteration; its prompts are the batch.
    settings
        What to do.

    Returns
    -------
    Delayed, or tuple of Delayed
        The train node; with a critic those of actor and critic.
    """
    samples = episodes(it, it.prompts, settings)
    reward = _reward(settings)
    if settings.advantage == GAE:
        return _actor_and_critic(it, settings, samples, reward)
    key = it.key("reward")
    scored = scoring.node(reward, settings.advantage, samples, iteration=it.index, key=key)
    return _train_actor(it, settings, samples, scored)


def _dynamic_pipeline(it: Iteration, settings: GrpoSettings) -> Generator[Delayed, Judged, Delayed]:
    """One iteration whose number of rollouts depends on what the prompts teach."""
    num_prompts = len(it.prompts) // settings.dynamic_rounds
    rounds: list[Judged] = []
    while len(rounds) < settings.dynamic_rounds:
        first = len(rounds) * num_prompts
        prompts = it.prompts[first : first + num_prompts]
        samples = episodes(it, prompts, settings, round_index=len(rounds))
        key = it.key("reward", turn=len(rounds))
        reward = _reward(settings)
        rounds.append((yield dynamic_sampling.node(reward, samples, iteration=it.index, key=key)))
        if sum(judged.informative().num_prompts for judged in rounds) >= num_prompts:
            break
    chosen = dynamic_sampling.choose(rounds, num_prompts)
    estimated = advantages.estimate(settings.advantage, chosen.rewards, chosen.samples)
    return _train_actor(it, settings, chosen.samples, Scored(chosen.rewards, estimated))


def _reward(settings: GrpoSettings) -> str | Verifier | Judge:
    """Who judges, with the penalty for length if there is one."""
    if not settings.overlong_buffer_tokens:
        return settings.reward
    limit = settings.max_completion_tokens
    return OverlongPenalty(settings.reward, limit, settings.overlong_buffer_tokens)


def _actor_and_critic(
    it: Iteration, settings: GrpoSettings, samples: Delayed, reward: str | Verifier | Judge
) -> tuple[Delayed, Delayed]:
    """PPO (arXiv 1707.06347): advantages and returns from a critic, which is trained beside."""
    critic = it.models["critic"]
    judged = rewards.node(reward, samples, iteration=it.index, key=it.key("reward"))
    values = critic.values(samples)
    estimated = advantages.gae_node(
        judged,
        values,
        samples,
        discount=settings.discount,
        gae_lambda=settings.gae_lambda,
        key=it.key("advantage"),
    )
    actor_node = _train_actor(it, settings, samples, estimated.advantages, judged)
    critic_node = critic.train(
        samples,
        estimated.returns,
        old_logprobs=values,
        loss="value",
        lr=settings.critic_lr,
        betas=settings.betas,
        max_grad_norm=settings.max_grad_norm,
        clip_low=settings.value_clip,
        clip_high=settings.value_clip,
        num_epochs=settings.num_epochs,
        num_minibatches=settings.num_minibatches,
        micro_batch_size=settings.micro_batch_size,
        autocast=settings.autocast,
        is_checkpointed=settings.is_checkpointed,
    )
    return actor_node, critic_node


def _train_actor(
    it: Iteration,
    settings: GrpoSettings,
    samples: Sequence[Sample] | Delayed,
    advantage: object,
    judged: object = None,
) -> Delayed:
    """The actor's train node."""
    reference = None
    if settings.kl_coef:
        # Of the distribution that is trained; at 0 that is the model's own.
        warmth = settings.temperature or 1.0
        reference = it.models["reference"].logprobs(samples, temperature=warmth)
    return it.models["actor"].train(
        samples,
        advantage,
        rewards=judged,
        reference_logprobs=reference,
        loss=settings.loss,
        lr=learning_rate(
            settings.lr,
            settings.lr_schedule,
            it.index,
            it.job.iterations,
            settings.warmup_iterations,
        ),
        betas=settings.betas,
        weight_decay=settings.weight_decay,
        max_grad_norm=settings.max_grad_norm,
        clip_low=settings.clip_low,
        clip_high=settings.clip_high,
        temperature=settings.temperature,
        num_epochs=settings.num_epochs,
        num_minibatches=settings.num_minibatches,
        **further_options(settings),
    )


def further_options(settings: GrpoSettings) -> FurtherTrainOptions:
    """The less common fields of the actor's train options."""
    return {
        "aggregation": settings.aggregation,
        "max_completion_tokens": settings.max_completion_tokens,
        "kl_coef": settings.kl_coef,
        "kl_estimator": settings.kl_estimator,
        "entropy_coef": settings.entropy_coef,
        "importance_cap": settings.importance_cap,
        "micro_batch_size": settings.micro_batch_size,
        "autocast": settings.autocast,
        "is_checkpointed": settings.is_checkpointed,
    }


def grpo(
    *,
    model: str,
    task: str | Task,
    iterations: int,
    algorithm: str | None = None,
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
    rollout_engine: str = "torch",
    lora: LoraSpec | None = None,
    **settings: object,
) -> JobSpec:
    """Job that trains one model on one task, with GRPO or a relative of it.

    Parameters
    ----------
    model
        Hugging Face folder of the first version.
    task
        Registered name, or a task of one's own.
    iterations
        How many iterations to run.
    algorithm
        A published algorithm (`dataflow.algorithms.PRESETS`), whose settings then stand where
        `settings` say nothing.
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
    rollout_engine
        ``torch`` or ``vllm``; see `dataflow.jobs.ModelSpec`.
    lora
        Adapters to train in place of the whole network; see `dataflow.jobs.ModelSpec`.
    **settings
        Fields of `GrpoSettings` that the task does not decide: `dataflow.algorithms.SETTINGS`; and
        how to look at the job: ``keep_samples`` as in `dataflow.jobs.JobSpec`, ``trackers`` (names,
        or `TrackerSpec` with options), ``evaluation`` (an `Evaluation`, or some of its fields as a
        mapping; prompts the task draws from another seed, and the task's reward, by default); and
        where its phases run: ``arrangement`` and ``groups`` as in `dataflow.jobs.JobSpec`.

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
    chosen = _chosen(task, task_options, num_prompts, num_samples, max_new_tokens)
    looks = _looks(settings, chosen, seed)
    own = _own_settings(chosen, seed, algorithm, settings)
    return JobSpec(
        name=chosen.name if name is None else name,
        models=_models(own, ModelSpec(model, rollout_engine=rollout_engine, lora=lora)),
        pipeline=GrpoPipeline(own),
        iterations=iterations,
        seed=seed,
        slowdown_limit=slowdown_limit,
        weight=weight,
        staleness=staleness,
        prompts=chosen.prompts(seed),
        num_prompts=own.dynamic_rounds * chosen.num_prompts,
        commit=Commit(every_iterations=commit_every),
        hints_s=chosen.hints_s if hints_s is None else hints_s,
        **looks,
    )


def _own_settings(
    task: Task, seed: int, algorithm: str | None, settings: Mapping[str, object]
) -> GrpoSettings:
    """Settings of the pipeline; there is a sample for every minibatch, whatever prompts teach.

    Raises
    ------
    PipelineError
        There may be none, or a setting is out of range.
    """
    own = settings_of(_task_settings(task, seed), algorithm, settings)
    num_sure = own.num_samples * (1 if own.dynamic_rounds > 1 else task.num_prompts)
    if own.num_minibatches > num_sure:
        raise PipelineError(
            f"grpo: num_minibatches is {own.num_minibatches}, but "
            f"{'as few as ' if own.dynamic_rounds > 1 else ''}{num_sure} samples are trained on in "
            "an iteration; give fewer minibatches or more samples"
        )
    return own


def _models(settings: GrpoSettings, actor: ModelSpec) -> dict[str, ModelSpec]:
    """The networks a job needs.

    Raises
    ------
    PipelineError
        Critic or reference do not go with the other settings.
    """
    for name, has_use, remedy in (
        ("critic", settings.advantage == GAE, "advantage='gae' (algorithm='ppo')"),
        ("reference", settings.kl_coef > 0, "a kl_coef above 0"),
    ):
        if getattr(settings, name) is not None and not has_use:
            raise PipelineError(
                f"grpo: {name} is {getattr(settings, name)!r}, but nothing uses it; give "
                f"{remedy} too, or leave {name} out"
            )
    models = {"actor": actor}
    if settings.advantage == GAE:
        if settings.dynamic_rounds > 1:
            raise PipelineError(
                f"grpo: dynamic_rounds is {settings.dynamic_rounds} with advantage 'gae'; a critic "
                "learns from every prompt: leave dynamic_rounds out"
            )
        models["critic"] = ModelSpec(settings.critic or actor.folder, head="value")
    if settings.kl_coef:
        models["reference"] = ModelSpec(settings.reference or actor.folder, is_trainable=False)
    return models


def _looks(settings: dict[str, Any], task: Task, seed: int) -> dict[str, Any]:
    """How to look at a job and where it runs, as `JobSpec` has it; taken out of the settings."""
    looks = {key: settings.pop(key) for key in (*LOOKS, *PLACES) if key in settings}
    looks["description"] = task.description
    if "trackers" in looks:
        _check_kinds(trackers=(looks["trackers"], (tuple, list), "a list of trackers"))
        looks["trackers"] = tuple(
            TrackerSpec(found) if isinstance(found, str) else found for found in looks["trackers"]
        )
    if isinstance(looks.get("evaluation"), Mapping):
        looks["evaluation"] = evaluation_of(task, seed, looks["evaluation"])
    return looks


def _chosen(
    task: str | Task,
    options: Mapping[str, object] | None,
    num_prompts: int | None,
    num_samples: int | None,
    max_new_tokens: int | None,
) -> Task:
    """The task, with the sizes the user gave in place of its own."""
    sizes = {
        "num_prompts": num_prompts,
        "num_samples": num_samples,
        "max_new_tokens": max_new_tokens,
    }
    _check_kinds(
        task=(task, (str, Task), "the name of a task, or a Task"),
        task_options=(options, (Mapping, type(None)), "a mapping of options to values"),
    )
    given_options = {str(name): value for name, value in (options or {}).items()}
    found = tasks.task(task, **given_options) if isinstance(task, str) else task
    given: dict[str, Any] = {key: size for key, size in sizes.items() if size is not None}
    for key, size in given.items():
        if size not in RANGES[key]:
            raise PipelineError(f"grpo: {key} is {size!r}; give {RANGES[key]}")
    return replace(found, **given)


def _check_kinds(**given: tuple[object, tuple[type, ...], str]) -> None:
    """Raise unless each value is of one of its kinds."""
    for name, (value, kinds, wanted) in given.items():
        if not isinstance(value, kinds):
            raise PipelineError(f"grpo: {name} is {value!r}; give {wanted}")


def _task_settings(task: Task, seed: int) -> dict[str, object]:
    """Settings of the pipeline that a task decides, where the user does not."""
    return {
        "reward": task.reward(seed),
        "environment": task.environment(seed) if task.environment else None,
        "num_tool_turns": task.num_tool_turns,
        "stop": task.stop,
        "num_samples": task.num_samples,
        "max_new_tokens": task.max_new_tokens,
    }
