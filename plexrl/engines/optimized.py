"""What a trainer needs of a network, whether one process holds it or several do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from transformers import PreTrainedModel

from plexrl.engines.protocol import ModelSource
from plexrl.engines.ranks import Ranks


@dataclass(frozen=True, slots=True)
class Optimized:
    """Weights that this process updates, with their optimizer state; all of one shape."""

    weights: torch.Tensor
    exp_avg: torch.Tensor
    exp_avg_sq: torch.Tensor
    step: torch.Tensor
    """Optimizer steps so far, a scalar."""


class Optimizable(Protocol):
    """A network whose gradients and moments a trainer works on."""

    source: ModelSource
    device: torch.device
    model: PreTrainedModel
    ranks: Ranks

    def optimized(self) -> list[Optimized]:
        """What this process updates; raises EngineError where the network is frozen."""
        ...

    def zero_gradients(self) -> None:
        """Forget the gradients."""
        ...

    def gradients(self) -> list[torch.Tensor]:
        """Gradients of what this process updates, summed over all ranks."""
        ...

    def snapshot(self) -> list[torch.Tensor]:
        """Copy of what training changes."""
        ...

    def restore(self, snapshot: Sequence[torch.Tensor]) -> None:
        """Go back to a copy."""
        ...
