"""What may answer between the turns of an episode."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from dataflow.samples import Sample


@runtime_checkable
class Environment(Protocol):
    """Answers the tool calls of samples; holds no group while it does."""

    def step(self, samples: Sequence[Sample], iteration: int) -> tuple[Sample, ...]:
        """The samples in their order: answered, ended with a reason, or as they were.

        An answer is put into ``pending_text``; the next ``generate`` encodes it and masks it.
        """
        ...
