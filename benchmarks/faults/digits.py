"""A verifier in a module of its own, so that the process that judges starts fast."""

from __future__ import annotations

from dataclasses import dataclass

from dataflow.samples import Sample


def num_digits(text: str) -> int:
    """How many characters are digits."""
    return sum(c in "0123456789" for c in text)


@dataclass(frozen=True, slots=True)
class DigitShare:
    """Share of the drawn characters that are digits: an untrained network earns some of it."""

    def __call__(self, sample: Sample) -> float:
        """Reward of one sample."""
        return num_digits(sample.text) / max(1, len(sample.text))
