"""When the arbiter wants to be woken: many moments, few timers."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator


class Alarms:
    """Moments that groups wait for, and the timers that are out.

    A timer (`instructions.WakeAt`) is asked for only where none rings by the earliest moment, and
    each rings once: at most two for a moment that somebody waits for, whoever else waits.
    """

    def __init__(self) -> None:
        self._wanted: list[tuple[int, str]] = []
        self._timers: list[int] = []

    def want(self, tick: int, name: str) -> None:
        """A group waits for a moment."""
        heapq.heappush(self._wanted, (tick, name))

    def rung(self, now: int) -> Iterator[tuple[int, str]]:
        """The timer that was to ring first rang; moments that have come, with their groups."""
        if self._timers:
            heapq.heappop(self._timers)
        while self._wanted and self._wanted[0][0] <= now:
            yield heapq.heappop(self._wanted)

    def uncovered(self, is_wanted: Callable[[int, str], bool]) -> int | None:
        """Tick to set one more timer to, if no timer rings by the earliest moment.

        Parameters
        ----------
        is_wanted
            Whether a group still waits for its moment; others are forgotten.
        """
        while self._wanted and not is_wanted(*self._wanted[0]):
            heapq.heappop(self._wanted)
        if not self._wanted:
            return None
        tick = self._wanted[0][0]
        if self._timers and self._timers[0] <= tick:
            return None
        heapq.heappush(self._timers, tick)
        return tick
