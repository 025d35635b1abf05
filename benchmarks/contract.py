"""What a benchmark is given and what it hands back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

Progress = Callable[[str], None]
"""Told in plain words what a benchmark does now."""


@dataclass(frozen=True, slots=True)
class BenchmarkResult:
    """Figures of one run of a benchmark."""

    name: str
    figures: Mapping[str, float]
    """Name, with its unit, → number."""
    peers: Mapping[str, float]
    """Figures of what was measured beside it in the same run."""
    seed: int

    def __post_init__(self) -> None:
        for figure, value in {**self.figures, **self.peers}.items():
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise TypeError(
                    f"figure {figure!r} of {self.name!r} is {value!r}; figures are numbers"
                )
