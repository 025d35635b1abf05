"""Turns an unknown word into a hint: what was probably meant, or what there is."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


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
    return f"known: {', '.join(words)}" if words else "there are none"
