"""The forward pass of a training to come, computed while its rewards are.

Training on samples that were just drawn begins with a forward pass that needs no rewards. An engine
that nobody asks for anything meanwhile computes it ahead; asked for anything else it gives it up.
What training then finds is what it would have computed: the same rows under the same weights.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

from plexrl.engines.forward import Forward
from plexrl.engines.scoring import Row, Scores


class GivenUpError(Exception):
    """The engine is asked for something else."""


class Foresight:
    """Keeps one forward pass until it is taken or given up."""

    def __init__(self) -> None:
        self._kept: tuple[tuple[Row, ...], int, Forward, Scores] | None = None
        self.was_taken = False
        """Whether the last scores asked for were kept here."""

    def keep(self, rows: tuple[Row, ...], width: int, forward: Forward, scores: Scores) -> None:
        """Keep the scores of rows, as wide as their longest completion."""
        self._kept = rows, width, forward, scores

    def take(self, rows: tuple[Row, ...], width: int, forward: Forward) -> Scores | None:
        """The scores of just these rows, once; None if others are kept, which are given up."""
        kept, self._kept = self._kept, None
        self.was_taken = kept is not None and kept[:3] == (rows, width, forward)
        return kept[3] if kept is not None and self.was_taken else None

    def clear(self) -> None:
        """Give up what is kept: the weights change, or its memory is wanted."""
        self._kept = None


@contextmanager
def watched(model: torch.nn.Module, may_go_on: Callable[[], bool]) -> Iterator[None]:
    """Ask before each step of a forward pass whether it may go on.

    Raises
    ------
    GivenUpError
        It may not.
    """

    def look(*_: object) -> None:
        if not may_go_on():
            raise GivenUpError

    hooks = [m.register_forward_pre_hook(look) for m in model.modules() if not _has_parts(m)]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def _has_parts(module: torch.nn.Module) -> bool:
    return next(module.children(), None) is not None
