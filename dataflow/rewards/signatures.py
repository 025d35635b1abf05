"""What a function wants to be called with: those written for other libraries are known by it."""

from __future__ import annotations

import inspect


def parameters_of(function: object) -> frozenset[str]:
    """Names of a function's parameters; none where it is no function, or does not tell."""
    if not callable(function):
        return frozenset()
    try:
        return frozenset(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return frozenset()
