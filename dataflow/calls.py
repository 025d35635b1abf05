"""The payload of an LLM node: what the service of a group is asked to run.

A call is a frozen value that is part of the graph. It is executed by whoever bound an
executor in this process (`bind`); a process in which nobody did is one without an LLM
service, and says so.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypedDict

from dataflow.errors import NoServiceError
from dataflow.lora import LoraSpec
from dataflow.phases import Phase
from dataflow.starts import StartVersion


@dataclass(frozen=True, slots=True)
class VersionToken:
    """Proof that one version of a model's state exists; stands for weights in the graph."""

    job: str
    model: str
    version: int
    """Count of committed train functions of the model."""
    digest: str
    """Checksum of the state's bytes, hexadecimal."""


@dataclass(frozen=True, slots=True)
class Trained:
    """Result of a train function: the new version and what was measured on the way."""

    token: VersionToken
    metrics: tuple[tuple[str, float], ...]
    """Name → value pairs, e.g. ``("loss", 0.02)``, ``("reward_mean", 0.41)``."""


@dataclass(frozen=True, slots=True)
class GenerateOptions:
    """Settings of a rollout."""

    num_samples: int = 8
    """Samples per prompt."""
    max_new_tokens: int = 8
    """Limit of tokens the policy may draw in this turn, per sample."""
    temperature: float = 1.0
    """Softmax temperature; 0 means greedy."""
    stop: tuple[str, ...] = ()
    """Texts that end a turn once drawn (they stay in the sample): a tool call's closing mark."""
    top_p: float = 1.0
    """Only the likeliest tokens whose probabilities together reach this share are drawn."""
    top_k: int = 0
    """Only this many of the likeliest tokens are drawn, before `top_p` counts; 0: all."""


@dataclass(frozen=True, slots=True)
class LogprobOptions:
    """Settings of a logprob function."""

    temperature: float = 1.0


@dataclass(frozen=True, slots=True)
class ValueOptions:
    """Settings of a value function: a critic's estimates; there are none yet."""


Loss = Callable[..., object]
"""A user's loss: ``loss(logprobs_BT, old_logprobs_BT, advantages_B, mask_BT) -> scalar tensor``."""


LOSS_NAMES = ("cispo", "grpo", "gspo", "reinforce", "value")
"""What `TrainOptions.loss` may be, beside a function; the engines define them."""
AGGREGATION_NAMES = ("token_mean", "sequence_mean", "sequence_sum", "fixed_length")
"""What `TrainOptions.aggregation` may be."""
KL_NAMES = ("k1", "k2", "k3")
"""What `TrainOptions.kl_estimator` may be."""
AUTOCAST_NAMES = (None, "bfloat16")
"""What `TrainOptions.autocast` may be."""


@dataclass(frozen=True, slots=True)
class TrainOptions:
    """Settings of a train function: one call, however many epochs and minibatches."""

    loss: str | Loss = "grpo"
    """Name of a registered loss, or a function of one's own (see `Loss`)."""
    learning_rate: float = 2e-4
    """Step size of this call; schedules are resolved when the iteration is built."""
    betas: tuple[float, float] = (0.9, 0.95)
    weight_decay: float = 0.0
    max_grad_norm: float = 1.0
    clip_low: float = 0.2
    clip_high: float = 0.28
    """PPO clip range [1 - low, 1 + high] (clip-higher: DAPO, arXiv 2503.14476)."""
    temperature: float = 1.0
    """Temperature the rollout was drawn at; logprobs are of the same distribution."""
    num_epochs: int = 1
    num_minibatches: int = 1
    aggregation: str = "token_mean"
    """How tokens and samples are averaged: ``token_mean``, ``sequence_mean``, ``sequence_sum`` or
    ``fixed_length``."""
    max_completion_tokens: int | None = None
    """The constant length of ``fixed_length``; None: the longest completion of the step."""
    kl_coef: float = 0.0
    """Weight of the distance to the reference, whose log-probabilities must then be given."""
    kl_estimator: str = "k3"
    """``k1``, ``k2`` or ``k3`` (Schulman 2020)."""
    entropy_coef: float = 0.0
    """Weight of the mean entropy of the policy, in nats a token, which is rewarded."""
    importance_cap: float | None = None
    """Largest importance weight of training over sampling policy; None: no such weights."""
    micro_batch_size: int | None = None
    """Samples per forward and backward, for memory; None: a minibatch at once."""
    autocast: str | None = None
    """``bfloat16``: matrix products in half precision, weights and sums in float32."""
    is_checkpointed: bool = False
    """Whether activations are computed again in the backward pass instead of kept."""


class FurtherTrainOptions(TypedDict, total=False):
    """Fields of `TrainOptions` that most pipelines leave alone, by their names there."""

    aggregation: str
    max_completion_tokens: int | None
    kl_coef: float
    kl_estimator: str
    entropy_coef: float
    importance_cap: float | None
    micro_batch_size: int | None
    autocast: str | None
    is_checkpointed: bool


@dataclass(frozen=True, slots=True)
class AttachOptions:
    """Settings of the sync function that opens a model on its group, first thing in a job."""

    folder: str
    """Hugging Face folder that version 0 is read from, if nothing was committed yet."""
    is_trainable: bool
    durable_every: int = 1
    """Every N-th version is written to the store."""
    num_versions: int = 1
    """Versions kept: more than one where older weights may still be asked for."""
    head: str = "lm"
    """See `dataflow.jobs.ModelSpec`."""
    rollout_engine: str = "torch"
    """See `dataflow.jobs.ModelSpec`."""
    start: StartVersion | None = None
    """What its first version is copied from; None: the folder."""
    lora: LoraSpec | None = None
    """See `dataflow.jobs.ModelSpec`."""


@dataclass(frozen=True, slots=True)
class Committed:
    """A train function of the past, as the version it made remembers it."""

    iteration: int
    """Iteration it belongs to."""
    at_s: float
    """When it committed, in seconds of the system clock."""
    metrics: tuple[tuple[str, float], ...]


@dataclass(frozen=True, slots=True)
class Attached:
    """Result of opening a model: the newest committed version and where it stands."""

    token: VersionToken
    iteration: int
    """Iterations whose train function the version includes."""
    data_cursor: int
    """Prompts consumed by the history that led to the version."""
    recent: tuple[Committed, ...] = ()
    """The train functions behind the versions that are still there, oldest first."""
    is_new: bool = False
    """Whether nothing had been committed before."""


@dataclass(frozen=True, slots=True)
class ExportOptions:
    """Settings of the sync function that writes a version for other programs."""

    folder: str
    """Where the Hugging Face folder is written."""
    model: AttachOptions
    """How the model is opened, should the group not have it open any more."""


@dataclass(frozen=True, slots=True)
class Exported:
    """Result of an export."""

    folder: str
    weights_sha256: str
    version: int


Options = (
    GenerateOptions
    | LogprobOptions
    | ValueOptions
    | TrainOptions
    | AttachOptions
    | ExportOptions
    | None
)


@dataclass(frozen=True, slots=True)
class LLMCall:
    """One LLM function, as it stands in the graph."""

    job: str
    model: str
    function: Phase
    iteration: int
    """From 0."""
    turn: int
    """Which call of this function within the iteration, from 0."""
    version: int
    """The version of the model's state it needs, exactly."""
    seed: int
    """Keys every draw, with iteration, prompt, sample and turn: the job's seed, or for the second
    and later rollouts of an iteration one derived from it (`dataflow.keys.stream_seed`)."""
    options: Options = None
    hint_s: float | None = None
    """Expected duration in seconds, for planning before anything was measured."""
    attempt: int = 0
    """How often the iteration was rebuilt after a rollback."""
    data_cursor: int = 0
    """Prompts consumed once this iteration has committed (train only)."""
    may_be_last: bool = False
    """Whether the version it makes may be the job's final one, which is always made durable: after
    the last iteration, and wherever an evaluation may end the job."""

    @property
    def op(self) -> str:
        """Name of the call within an iteration: what profiles and plans speak of."""
        return f"{self.model}.{self.function}.{self.turn}"


class Executor(Protocol):
    """What runs an LLM call in this process."""

    def __call__(self, call: LLMCall, inputs: tuple[object, ...]) -> object:
        """Run the call and return the node's result."""


_executors: list[Executor] = []


def bind(executor: Executor | None) -> None:
    """Make `executor` run the LLM calls of this process; None takes it away."""
    _executors.clear()
    if executor is not None:
        _executors.append(executor)


def run_call(call: LLMCall, *inputs: object) -> object:
    """Body of every LLM node.

    Raises
    ------
    NoServiceError
        Nobody bound an executor: the graph was computed without an LLM service.
    """
    if not _executors:
        raise NoServiceError(
            f"{call.function} of job {call.job!r} (iteration {call.iteration}) was run by a "
            "scheduler that has no LLM service. Submit the job to plexrl.LocalCluster(...) or to "
            "plexrl.attach(client) instead of computing its graph with a plain Dask scheduler."
        )
    return _executors[0](call, inputs)
