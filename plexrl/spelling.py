"""Words for people: a hint for one that is unknown, and numbers with their noun."""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import get_close_matches

_DIGITS = re.compile(r"(\d+)")

MAX_LISTED = 24
"""Words listed at most: what one line of a terminal can hold three or four times."""


def hint(word: object, known: Iterable[str]) -> str:
    """A sentence that helps: the closest known word, or all of them.

    Parameters
    ----------
    word
        What was given.
    known
        Legal words.
    """
    words = sorted(known)
    close = get_close_matches(str(word), words, n=1, cutoff=0.6)
    if close:
        return f"did you mean {close[0]!r}?"
    if not words:
        return "there are none"
    others = f" and {len(words) - MAX_LISTED} more" if len(words) > MAX_LISTED else ""
    return f"known: {', '.join(words[:MAX_LISTED])}{others}"


def counted(number: int, noun: str) -> str:
    """A number with its noun, as people say it: ``1 job``, ``2 jobs``."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def as_counted(name: str) -> list[int | str]:
    """Key that sorts names as people count: ``group-9`` before ``group-10``."""
    # Digits stand in the odd places, so that numbers are only compared with numbers.
    return [int(part) if place % 2 else part for place, part in enumerate(_DIGITS.split(name))]
