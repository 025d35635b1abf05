"""Prompts of the calculator task: products that are easy for a tool and hard for a tiny model."""

from __future__ import annotations

from dataclasses import dataclass

from numpy.random import Generator, Philox

from dataflow.errors import DataError
from dataflow.keys import draw_key, stream_seed
from dataflow.samples import Prompt


@dataclass(frozen=True, slots=True)
class CalculatorPrompts:
    """Prompts such as ``q12*34=`` with the product as the gold answer."""

    seed: int = 0
    smallest: int = 10
    """Smallest factor."""
    largest: int = 99
    """Largest factor."""

    def __post_init__(self) -> None:
        if not 0 <= self.smallest <= self.largest:
            raise DataError(
                f"calculator prompts with factors from {self.smallest} to {self.largest} cannot be "
                "made; give 0 ≤ smallest ≤ largest"
            )

    def batch(self, cursor: int, count: int) -> tuple[Prompt, ...]:
        """Prompts ``cursor … cursor + count - 1``."""
        return tuple(self._prompt(index) for index in range(cursor, cursor + count))

    def _prompt(self, index: int) -> Prompt:
        """Prompt at one position of the stream."""
        key = draw_key(stream_seed(self.seed, "calculator"), 0, index, 0, 0)
        draws = Generator(Philox(key=key)).integers(self.smallest, self.largest + 1, size=2)
        left, right = (int(value) for value in draws)
        expression = f"{left}*{right}"
        return Prompt(
            index=index,
            text=f"q{expression}=",
            answer=str(left * right),
            meta={"expression": expression},
        )
