"""What a benchmark hands back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class BenchmarkResult:
    """Figures of one run of a benchmark."""

    name: str
    figures: Mapping[str, float]
    """Name, with its unit, → number."""
    seed: int
    peers: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """What was measured beside it in the same run → its figures."""
    notes: tuple[str, ...] = ()
    """What a reader of the numbers must know."""

    def __post_init__(self) -> None:
        for owner, figures in [(self.name, self.figures), *self.peers.items()]:
            for figure, value in figures.items():
                if isinstance(value, bool) or not isinstance(value, int | float):
                    raise TypeError(
                        f"figure {figure!r} of {owner!r} is {value!r}; figures are numbers, put "
                        "words into notes"
                    )
