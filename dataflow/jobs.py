"""What a job is, before anything runs: a frozen, picklable description."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from os import PathLike, fspath
from pathlib import PurePath

from dataflow.errors import PipelineError
from dataflow.evaluation import Evaluation
from dataflow.lora import LoraSpec
from dataflow.portrait import facts_html
from dataflow.starts import StartVersion

ROLLOUT_ENGINES = ("torch", "vllm")
"""What `ModelSpec.rollout_engine` may be."""

HEADS = ("lm", "value")
"""What `ModelSpec.head` may be."""

ARRANGEMENTS = ("any", "colocated", "split", "asynchronous", "private_rollout")
"""What `JobSpec.arrangement` may be."""


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """A named network of a job."""

    folder: str
    """Hugging Face folder its version 0 is read from; a `Path` becomes text."""
    is_trainable: bool = True
    """Whether train functions may change it; a frozen model stays at version 0."""
    head: str = "lm"
    """``lm``: next-token logits; ``value``: one number per position, a critic, whose head starts
    at zero where the folder has none."""
    rollout_engine: str = "torch"
    """Engine of the model's rollouts: ``torch``, which also trains it and gives the same bits
    always, or ``vllm``."""
    lora: LoraSpec | None = None
    """Adapters to train over the network of the folder, which stays frozen and is shared with
    other jobs; None trains all of it."""

    def __post_init__(self) -> None:
        if isinstance(self.folder, PathLike):
            object.__setattr__(self, "folder", fspath(self.folder))
        if self.lora is not None and not isinstance(self.lora, LoraSpec):
            raise PipelineError(
                f"model {self.folder!r} has lora {self.lora!r}; give a LoraSpec, or leave lora out"
            )
        if self.lora is not None and (self.head != "lm" or not self.is_trainable):
            raise PipelineError(
                f"model {self.folder!r} has lora with head={self.head!r} and is_trainable="
                f"{self.is_trainable}; adapters are for trained models with an 'lm' head: leave "
                "lora out"
            )


@dataclass(frozen=True, slots=True)
class Commit:
    """When committed versions become durable."""

    every_iterations: int = 1
    """Every N-th version of a trainable model is written to the store."""


@dataclass(frozen=True, slots=True)
class TrackerSpec:
    """Where a job's metrics go, beside the JSON Lines that are always written."""

    name: str
    """``mlflow``, ``tensorboard``, ``trackio`` or ``wandb``."""
    options: Mapping[str, object] = field(default_factory=dict)
    """Of the tracker, e.g. ``{"project": "sorting"}``."""


@dataclass(frozen=True, slots=True)
class JobSpec:
    """One RLVR training run."""

    name: str
    """Unique in the cluster; letters, digits, '-', '_' and '.'."""
    models: Mapping[str, ModelSpec]
    """Name → network; the one called ``actor`` samples in the built-in pipelines."""
    pipeline: Callable[..., object]
    """Builds the Dask nodes of one iteration: ``pipeline(it)`` (see `dataflow.iteration`)."""
    iterations: int
    """How many iterations to run."""
    seed: int = 0
    """Every draw of the job is a function of it."""
    slowdown_limit: float = 2.0
    """Largest allowed mean iteration time shared ÷ alone."""
    weight: float = 1.0
    """Importance beside other jobs."""
    staleness: int = 0
    """Versions allowed between the weights that sample and the weights that train."""
    prompts: object = None
    """Prompt source of the job (`dataflow.datasets.PromptSource`), or None if the pipeline has
    its own."""
    num_prompts: int = 16
    """Prompts an iteration consumes from the source."""
    commit: Commit = field(default_factory=Commit)
    hints_s: Mapping[str, float] = field(default_factory=dict)
    """Op → expected seconds (and ``wait:<op>`` → expected seconds without a group after it),
    used until phases were measured."""
    keep_samples: int = 1
    """The samples of every N-th iteration, and of those that may be the last one, are kept in the
    store to be looked at; 0 keeps none."""
    evaluation: Evaluation | None = None
    """What the job is measured on from time to time."""
    trackers: tuple[TrackerSpec, ...] = ()
    """Who is told of each committed iteration."""
    start: StartVersion | None = None
    """Version of another job it is forked from; None: its models' folders. It counts on from that
    version's iteration, so `iterations` includes those of the job it is forked from."""
    max_steps: int = 1000
    """Values a generator pipeline may ask for in one iteration: one that goes on asking and never
    trains ends with an error."""
    description: str = ""
    """One line for tables: what is verified, and by whom."""
    arrangement: str = "any"
    """Where its phases run: ``any`` (the planner decides), ``colocated`` (all on one group),
    ``split`` (rollouts on another group than the rest), ``asynchronous`` (split, with `staleness`
    of at least 1) or ``private_rollout`` (split, with a rollout group shared with nobody)."""
    groups: Mapping[str, str] = field(default_factory=dict)
    """Phase (``train``, ``rollout``, ``logprob``), or model and phase (``reference.logprob``), →
    name of the group it must run on; what is not named is the planner's choice."""

    def may_end_after(self, index: int) -> bool:
        """Whether the job may be over after an iteration: after the last, or by an evaluation."""
        if index == self.iterations - 1:
            return True
        evaluation = self.evaluation
        return (
            evaluation is not None
            and evaluation.may_stop
            and evaluation.is_due(index, self.iterations)
        )

    def _repr_html_(self) -> str:
        return facts_html(f"Job {self.name}", self.description, self._facts())

    def _facts(self) -> Iterator[tuple[str, str]]:
        for name, model in self.models.items():
            kind = "trained" if model.is_trainable else "frozen"
            lora = ", adapters only" if model.lora is not None else ""
            engine = f", rollouts by {model.rollout_engine}" if name == "actor" else ""
            yield f"model {name}", f"{PurePath(model.folder).name}: {kind}{lora}{engine}"
        prompts = "" if self.prompts is None else f", {self.num_prompts} prompts each"
        yield "iterations", f"{self.iterations}{prompts}"
        yield "slowdown limit", f"{self.slowdown_limit:g}"
        yield "weight", "" if self.weight == 1.0 else f"{self.weight:g}"
        yield "arrangement", "" if self.arrangement == "any" else self.arrangement
        yield "groups", ", ".join(f"{phase} on {group}" for phase, group in self.groups.items())
        yield "staleness", f"{self.staleness}" if self.staleness else ""
        if self.evaluation is not None:
            every, num_asked = self.evaluation.every_iterations, self.evaluation.num_prompts
            yield "evaluation", f"{num_asked} held-out prompts, every {every} iterations"
        yield "trackers", ", ".join(tracker.name for tracker in self.trackers)
        yield "starts from", "" if self.start is None else str(self.start)
        yield "seed", str(self.seed)
