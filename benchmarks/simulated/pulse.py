"""How late an event loop is: what it does at once, others wait for."""

from __future__ import annotations

import asyncio
import time
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

BEAT_S = 0.02
"""Seconds between looks: short against a solve, and a thousandth of a core."""


@dataclass(frozen=True, slots=True)
class Late:
    """Seconds by which looks came late."""

    planning_s: tuple[float, ...]
    """While a plan was being made."""
    otherwise_s: tuple[float, ...]


class Pulse:
    """Looks again and again at how late it is called."""

    def __init__(self) -> None:
        self._beats: list[tuple[float, float]] = []
        """(second of the system clock, seconds late)."""

    async def beat(self) -> None:
        """Look until cancelled."""
        while True:
            due_s = time.monotonic() + BEAT_S
            await asyncio.sleep(BEAT_S)
            self._beats.append((time.time(), time.monotonic() - due_s))

    def late_s(self, spans: Sequence[tuple[float, float]]) -> Late:
        """What was seen, inside of spans and outside.

        Parameters
        ----------
        spans
            Begin and end in seconds of the system clock; they do not overlap.
        """
        ordered = sorted(spans)
        begins = [begin for begin, _ in ordered]
        inside: list[float] = []
        outside: list[float] = []
        for at_s, late_s in self._beats:
            index = bisect_right(begins, at_s) - 1
            is_inside = index >= 0 and at_s - late_s <= ordered[index][1]
            (inside if is_inside else outside).append(late_s)
        return Late(tuple(inside), tuple(outside))
