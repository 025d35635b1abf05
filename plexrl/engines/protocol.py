"""What a service asks of an engine: a small protocol, one conformance suite.

An engine holds one resident network per architecture on its device, with one flat device
buffer laid out as `StateLayout` says; loading and storing a state is one copy between
that buffer and an arena.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from dataflow.calls import GenerateOptions, LogprobOptions, TrainOptions
from dataflow.samples import Prompt, Sample
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

    samples: tuple[Sample, ...]
    advantages: tuple[float, ...] | tuple[tuple[float, ...], ...]
    """One per sample, or per sample one for each completion token."""
    old_logprobs: tuple[tuple[float, ...], ...] | None = None
    """Per sample one value per completion token; None: the engine recomputes them by its
    own training forward before the first step."""
    reference_logprobs: tuple[tuple[float, ...], ...] | None = None
    """Per sample one value per completion token, under the reference that `TrainOptions.kl_coef`
    weighs the distance to."""


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
        """Arena → device: the network computes with this state from now on."""
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

    def logprobs(
        self, samples: Sequence[Sample], options: LogprobOptions
    ) -> tuple[tuple[float, ...], ...]:
        """Log-probabilities (nats) of the completion tokens, by the training forward."""
        ...

    def values(self, samples: Sequence[Sample]) -> tuple[tuple[float, ...], ...]:
        """A critic's estimate before each completion token (models with a value head only)."""
        ...

    def train(self, batch: TrainBatch, options: TrainOptions) -> Mapping[str, float]:
        """Train in place; returns loss, grad_norm, entropy and what else was measured."""
        ...

    def export(self, folder: str) -> None:
        """Write the loaded weights as a Hugging Face folder that `transformers` loads."""
        ...

    def weights_sha256(self) -> str:
        """SHA-256 of the loaded weights: names and bytes, in layout order."""
        ...
