"""What may judge samples: a function of one sample, or an object that judges a batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, runtime_checkable

from dataflow.samples import Rewards, Sample

Verifier = Callable[[Sample], float]
"""Reward of one sample: a finite number."""


@runtime_checkable
class Judge(Protocol):
    """Judges all samples of an iteration at once."""

    def judge(self, samples: Sequence[Sample], iteration: int) -> Rewards:
        """One finite reward per sample, in their order."""
        ...
