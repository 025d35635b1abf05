"""The same GRPO job as a plain Python loop: one engine in this process, no Dask, no swaps.

It is the peer that the overhead of PlexRL is measured against, and a check: it draws and
trains exactly what the built-in pipeline does, so its final weights are those of a PlexRL run.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from dataflow import environments, scoring
from dataflow.calls import GenerateOptions, TrainOptions
from dataflow.jobs import JobSpec
from dataflow.keys import stream_seed
from dataflow.pipelines import GrpoPipeline, GrpoSettings, further_options
from dataflow.samples import Prompt, Sample
from dataflow.schedules import learning_rate
from plexrl.engines.protocol import DrawKey, Engine, ModelSource, TrainBatch
from plexrl.engines.torch_engine import TorchEngine


@dataclass(frozen=True, slots=True)
class PlainIteration:
    """One iteration of the loop."""

    rollout_s: float
    """All turns together."""
    tool_s: float
    """Environment steps."""
    score_s: float
    """Reward and advantage."""
    train_s: float
    metrics: dict[str, float]
    """What the train function measured, and ``reward_mean``."""

    @property
    def total_s(self) -> float:
        """Seconds of the whole iteration."""
        return self.rollout_s + self.tool_s + self.score_s + self.train_s


@dataclass(frozen=True, slots=True)
class PlainRun:
    """What a plain loop did."""

    iterations: tuple[PlainIteration, ...]
    weights_sha256: str
    """Of the final weights; equal to that of the same job run by PlexRL."""


def run_plain(
    job: JobSpec,
    iterations: int | None = None,
    engine: Engine | None = None,
    progress: Callable[[int, PlainIteration], None] = lambda *_: None,
) -> PlainRun:
    """Run a job of `dataflow.pipelines.grpo` as a plain loop.

    Parameters
    ----------
    job
        A job of the built-in pipeline without staleness, critic, reference or dynamic sampling.
    iterations
        How many iterations to run of those the job has; all by default. Schedules follow the
        job's own number.
    engine
        Engine of the actor's architecture; by default a fresh `TorchEngine` on the CPU.
    progress
        Called after each iteration with its number.
    """
    assert isinstance(job.pipeline, GrpoPipeline)
    assert job.staleness == 0
    assert set(job.models) == {"actor"}
    assert job.pipeline.settings.dynamic_rounds == 1
    source = ModelSource(job.models["actor"].folder)
    engine = engine or TorchEngine(source, "cpu")
    arena = memoryview(bytearray(engine.layout().nbytes))
    engine.read_folder(source.folder, arena)
    engine.load(arena)
    done: list[PlainIteration] = []
    for index in range(job.iterations if iterations is None else iterations):
        done.append(_iterate(job, job.pipeline.settings, engine, index))
        progress(index, done[-1])
    return PlainRun(tuple(done), engine.weights_sha256())


class _Stopwatch:
    """Adds up the seconds spent under each name."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    def run(self, name: str, function: Callable[..., object], *args: object) -> object:
        start_s = time.perf_counter()
        result = function(*args)
        self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start_s
        return result


def _iterate(job: JobSpec, settings: GrpoSettings, engine: Engine, index: int) -> PlainIteration:
    watch = _Stopwatch()
    prompts = job.prompts.batch(index * job.num_prompts, job.num_prompts)  # type: ignore[attr-defined]
    samples = _roll_out(job, settings, engine, index, prompts, watch)
    scored = watch.run("score", scoring.score, settings.reward, settings.advantage, samples, index)
    batch = TrainBatch(samples, scored.advantages)  # type: ignore[attr-defined]
    metrics = watch.run("train", engine.train, batch, train_options(job, settings, index))
    rewards = scored.rewards.values  # type: ignore[attr-defined]
    return PlainIteration(
        watch.seconds["rollout"],
        watch.seconds.get("tool", 0.0),
        watch.seconds["score"],
        watch.seconds["train"],
        {**metrics, "reward_mean": sum(rewards) / len(rewards)},  # type: ignore[dict-item]
    )


def _roll_out(
    job: JobSpec,
    settings: GrpoSettings,
    engine: Engine,
    index: int,
    prompts: tuple[Prompt, ...],
    watch: _Stopwatch,
) -> tuple[Sample, ...]:
    options = GenerateOptions(
        settings.num_samples, settings.max_new_tokens, settings.temperature, settings.stop
    )
    key = DrawKey(job.seed, index)
    samples = watch.run("rollout", engine.generate, prompts, options, key)
    if settings.environment is not None:
        for turn in range(1, settings.num_tool_turns + 1):
            samples = watch.run("tool", environments.step, settings.environment, samples, index)
            key = DrawKey(stream_seed(job.seed, f"actor.rollout.{turn}"), index)
            samples = watch.run("rollout", engine.generate, samples, options, key)
    return samples  # type: ignore[return-value]


def train_options(job: JobSpec, settings: GrpoSettings, index: int) -> TrainOptions:
    lr = learning_rate(
        settings.lr, settings.lr_schedule, index, job.iterations, settings.warmup_iterations
    )
    return TrainOptions(
        loss=settings.loss,
        learning_rate=lr,
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
