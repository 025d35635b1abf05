"""Prompts of the letter tasks: distinct digits to be put in some order."""

from __future__ import annotations

from dataclasses import dataclass

from numpy.random import Generator, Philox

from dataflow.errors import DataError
from dataflow.keys import draw_key, stream_seed
from dataflow.samples import Prompt

SYMBOLS = "0123456789"


@dataclass(frozen=True, slots=True)
class LetterPrompts:
    """Prompts such as ``x31524=``, which do not say what order is wanted; the verifier does."""

    seed: int = 0
    length: int = 5
    """Symbols per prompt, all different."""

    def __post_init__(self) -> None:
        if not 2 <= self.length <= len(SYMBOLS):
            raise DataError(
                f"letter prompts of length {self.length} cannot be made of {len(SYMBOLS)} "
                f"different symbols; take a length from 2 to {len(SYMBOLS)}"
            )

    def batch(self, cursor: int, count: int) -> tuple[Prompt, ...]:
        """Prompts ``cursor … cursor + count - 1``."""
        return tuple(self._prompt(index) for index in range(cursor, cursor + count))

    def _prompt(self, index: int) -> Prompt:
        """Prompt at one position of the stream."""
        key = draw_key(stream_seed(self.seed, "letters"), 0, index, 0, 0)
        order = Generator(Philox(key=key)).permutation(len(SYMBOLS))[: self.length]
        symbols = "".join(SYMBOLS[position] for position in order)
        return Prompt(index=index, text=f"x{symbols}=", meta={"symbols": symbols})
