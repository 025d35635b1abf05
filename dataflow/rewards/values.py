"""What counts as a reward: one number, whatever kind of number it is; how others are shown."""

from __future__ import annotations

from reprlib import Repr
from typing import SupportsFloat

_SHORT = Repr()
_SHORT.maxstring = 400


def number_of(value: object) -> float | None:
    """The number a reward function gave, which may be NaN; None where it gave something else.

    Numbers of NumPy and tensors of one element count, as does a bool. A text that reads like a
    number does not: whoever returns one has forgotten something.
    """
    if not isinstance(value, SupportsFloat):
        return None
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError, RuntimeError):
        return None


def shown(value: object) -> str:
    """A text in quotes, or another value, its middle left out where it is long, for messages."""
    return _SHORT.repr(value)
