"""What a service asks of an engine: a small protocol, one conformance suite.

An engine holds one resident network per architecture on its device, with one flat device
buffer laid out as `StateLayout` says; loading and storing a state is one copy between
that buffer and an arena.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from dataflow.calls import GenerateOptions, LogprobOptions, TrainOptions
from dataflow.lora import LoraSpec
from dataflow.samples import Prompt, Sample, SampleId
from plexrl.core.layout import StateLayout


class EngineKind(StrEnum):
    """Library that computes."""

    TORCH = "torch"
    """Every LLM function (an `Engine`)."""
    VLLM = "vllm"
    """Rollouts only (a `RolloutEngine`)."""


@dataclass(frozen=True, slots=True)
class ModelSource:
    """Where an engine finds a network: a Hugging Face folder and whether it will be trained."""

    folder: str
    is_trainable: bool = True
    head: str = "lm"
    """``lm`` or ``value``; see `dataflow.jobs.ModelSpec`."""
    lora: LoraSpec | None = None
    """Adapters that its states consist of; None: they are whole networks."""
    kind: EngineKind = EngineKind.TORCH
    """Engine that holds it."""


@dataclass(frozen=True, slots=True)
class DrawKey:
    """Keys every draw of a rollout: with prompt, sample, turn and token it names one number."""

    seed: int
    iteration: int


@dataclass(frozen=True, slots=True)
class TrainBatch:
    """Input of a train function."""

    samples: Sequence[Sample]
    advantages: tuple[float, ...] | tuple[tuple[float, ...], ...]
    """One per sample, or per sample one for each completion token."""
    old_logprobs: tuple[tuple[float, ...], ...] | None = None
    """Per sample one value per completion token; None: the engine recomputes them by its
    own training forward before the first step."""
    reference_logprobs: tuple[tuple[float, ...], ...] | None = None
    """Per sample one value per completion token, under the reference that `TrainOptions.kl_coef`
    weighs the distance to."""


@dataclass(frozen=True, slots=True)
class StoredTraining:
    """What training gave whose state was stored at once."""

    metrics: Mapping[str, float]
    """What was measured on the way."""
    store_s: float
    """Seconds that storing took."""
    ahead_s: float = 0.0
    """Seconds of the training that were computed before it was asked for."""


@dataclass(frozen=True, slots=True)
class Break:
    """Says when a generation shall stop between two tokens, or training between two parts."""

    name: str
    """Of what shall stop; never used for another one."""
    is_asked: Callable[[], bool]
    """Asked after each token or micro-batch; cheap."""
    resumes: str = ""
    """Name of the interrupted generation this one goes on with; empty for a new one."""
    cancelled: Callable[[], frozenset[SampleId]] = frozenset
    """Samples that end with the token they are at, or with their first one; cheap, and told anew
    each time: after `is_asked`, what has come until then."""


@dataclass(frozen=True, slots=True)
class Interrupted:
    """A generation that stopped between two tokens, and what it takes to go on with it.

    Whoever goes on gets the samples of an uninterrupted generation: of the torch engine bit for
    bit, of vLLM to within rounding. Where the engine no longer keeps what was drawn for a row, the
    row is drawn again, by the same keys.
    """

    name: str
    """Of the break; under it the engine keeps what it has of the unfinished rows."""
    samples: tuple[Sample, ...]
    """All in order; those of `rows` as they were before the turn."""
    rows: tuple[int, ...]
    """Rows of `samples` whose turn is not over; never empty."""


@dataclass(frozen=True, slots=True)
class DrawnAhead:
    """What a generation gave that may have been begun before it was asked for."""

    found: Sequence[Sample] | Interrupted
    ahead_s: float
    """Seconds of it before it was asked for."""


@dataclass(frozen=True, slots=True)
class Unfinished:
    """A sample whose turn is being drawn."""

    sample: SampleId
    num_tokens: int
    """Drawn in this turn so far."""


class RolloutEngine(Protocol):
    """One resident network that only samples; it reads the weights of the states of an `Engine`."""

    def layout(self) -> StateLayout:
        """Layout of what it reads: the weights slots of the `Engine` of this architecture."""
        ...

    def load(self, arena: memoryview) -> None:
        """Arena → device; takes released memory again first."""
        ...

    def generate(
        self, inputs: Sequence[Prompt] | Sequence[Sample], options: GenerateOptions, key: DrawKey
    ) -> tuple[Sample, ...]:
        """As `Engine.generate`."""
        ...

    def generate_until(
        self,
        stop: Break,
        inputs: Sequence[Prompt] | Sequence[Sample] | Interrupted,
        options: GenerateOptions,
        key: DrawKey,
    ) -> tuple[Sample, ...] | Interrupted:
        """As `Engine.generate_until`."""
        ...

    def discard(self, name: str) -> None:
        """As `Engine.discard`."""
        ...

    def unfinished(self) -> tuple[Unfinished, ...]:
        """As `Engine.unfinished`."""
        ...

    def release(self) -> None:
        """Give the memory of weights and caches back; the next `load` takes it again."""
        ...

    def memory_bytes(self) -> int:
        """Bytes in use: of device memory on a GPU, else resident in the engine's process."""
        ...


class Engine(Protocol):
    """One resident network of one architecture."""

    def layout(self) -> StateLayout:
        """Layout of a state of this architecture (weights, then optimizer if trainable)."""
        ...

    def read_folder(self, folder: str, arena: memoryview) -> None:
        """Write version 0 (weights of the folder, fresh optimizer) into a writable arena."""
        ...

    def load(self, arena: memoryview) -> None:
        """Arena → device: the network computes with this state from now on.

        Takes released memory again first.
        """
        ...

    def store(self, arena: memoryview) -> None:
        """Device → arena: the state as it stands now."""
        ...

    def generate(
        self, inputs: Sequence[Prompt] | Sequence[Sample], options: GenerateOptions, key: DrawKey
    ) -> tuple[Sample, ...]:
        """Sample completions of prompts, or continue the active ones of earlier samples.

        Prompts give ``num_samples`` samples each, ordered by prompt then sample. Samples are
        returned in the order given, inactive ones unchanged.
        """
        ...

    def generate_until(
        self,
        stop: Break,
        inputs: Sequence[Prompt] | Sequence[Sample] | Interrupted,
        options: GenerateOptions,
        key: DrawKey,
    ) -> tuple[Sample, ...] | Interrupted:
        """As `generate`, and stop when asked to; or go on with what was interrupted.

        Going on takes the weights, options and key of the beginning.
        """
        ...

    def discard(self, name: str) -> None:
        """Give up an interrupted generation: what is kept under its name is freed."""
        ...

    def unfinished(self) -> tuple[Unfinished, ...]:
        """What is being drawn right now; called from another thread, while it is."""
        ...

    def logprobs(
        self, samples: Sequence[Sample], options: LogprobOptions
    ) -> tuple[tuple[float, ...], ...]:
        """Log-probabilities (nats) of the completion tokens, by the training forward."""
        ...

    def values(self, samples: Sequence[Sample]) -> tuple[tuple[float, ...], ...]:
        """A critic's estimate before each completion token (models with a value head only)."""
        ...

    def train(
        self, batch: TrainBatch, options: TrainOptions, stop: Break | None = None
    ) -> Mapping[str, float]:
        """Train in place; returns loss, grad_norm, entropy and what else was measured.

        Asked to stop, it raises `plexrl.errors.EngineStoppedError` before the next micro-batch;
        the state is then the one from before the call.
        """
        ...

    def export(self, folder: str) -> None:
        """Write the loaded weights as a Hugging Face folder that `transformers` loads."""
        ...

    def weights_sha256(self) -> str:
        """SHA-256 of the loaded weights: names and bytes, in layout order."""
        ...

    def release(self) -> None:
        """Give memory back, what is kept of interrupted generations included.

        The next `load` takes it again; until then only `layout` and `read_folder` work.
        """
        ...

    def memory_bytes(self) -> int:
        """Bytes in use: of device memory on a GPU, else resident in the engine's process."""
        ...
