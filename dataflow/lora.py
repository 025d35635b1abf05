"""Low-rank adapters, as a job asks for them."""

from __future__ import annotations

from dataclasses import dataclass

from dataflow.errors import PipelineError
from dataflow.ranges import Range

LORA_TARGETS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
"""Every linear layer of a block, as most decoder-only models name them."""


_RANKS = Range(1, 10**6, is_whole=True)
_ALPHAS = Range(0, is_above=True)


@dataclass(frozen=True, slots=True)
class LoraSpec:
    """Low-rank adapters that are trained in place of the network (arXiv 2106.09685).

    Raises
    ------
    PipelineError
        A value is out of range.
    """

    rank: int = 8
    """Rank of each adapter."""
    alpha: float = 16.0
    """An adapter's output is scaled by alpha ÷ rank."""
    targets: tuple[str, ...] = LORA_TARGETS
    """Linear layers that have one, by the last part of their names."""

    def __post_init__(self) -> None:
        if not isinstance(self.targets, tuple) or not self.targets:
            raise PipelineError(
                f"lora targets are {self.targets!r}; give a tuple of the names of linear "
                f"layers, such as {LORA_TARGETS[:2]}"
            )
        if self.rank not in _RANKS or self.alpha not in _ALPHAS:
            raise PipelineError(
                f"lora has rank={self.rank} and alpha={self.alpha}; give {_RANKS} and {_ALPHAS}"
            )
