"""Processes that have answered all they were asked, kept for the next who asks the same."""

from __future__ import annotations

import atexit
import threading
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass

from dataflow.processes import AnsweringProcess

IDLE_S = 60.0
"""Seconds that one is kept: more than most iterations take, so that libraries which take a second
to import are imported once."""
MAX_IDLE = 4
"""Most of them: each may hold a hundred megabytes."""


@dataclass(frozen=True, slots=True)
class _Idle:
    key: Hashable
    process: AnsweringProcess
    until_s: float


class IdleProcesses:
    """Idle processes of this one, by what they can answer; they end with it at the latest.

    Parameters
    ----------
    idle_s
        Seconds after which one is ended.
    most
        How many are kept; beyond that the oldest is ended.
    clock
        Seconds since any moment.
    """

    def __init__(
        self,
        idle_s: float = IDLE_S,
        most: int = MAX_IDLE,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._idle_s = idle_s
        self._most = most
        self._clock = clock
        self._changed = threading.Condition()
        self._found: list[_Idle] = []
        self._is_watched = False
        atexit.register(self.close)

    def take(self, key: Hashable) -> AnsweringProcess | None:
        """A living process of a key; from now on whoever takes it ends it, or gives it back."""
        while True:
            with self._changed:
                entry = next((e for e in reversed(self._found) if e.key == key), None)
                if entry is None:
                    return None
                self._found.remove(entry)
            if entry.process.is_alive:
                return entry.process
            entry.process.close()

    def give(self, key: Hashable, process: AnsweringProcess) -> None:
        """Keep a process that waits for its next request."""
        with self._changed:
            self._found.append(_Idle(key, process, self._clock() + self._idle_s))
            surplus = self._found.pop(0) if len(self._found) > self._most else None
            if not self._is_watched:
                self._is_watched = True
                threading.Thread(target=self._watch, name="plexrl-idle", daemon=True).start()
        if surplus is not None:
            surplus.process.close()

    def close(self) -> None:
        """End them all."""
        with self._changed:
            found, self._found = self._found, []
            self._changed.notify_all()
        for entry in found:
            entry.process.close()

    def _watch(self) -> None:
        """End each when its time is over; the thread ends with the last of them."""
        while True:
            with self._changed:
                if not self._found:
                    self._is_watched = False
                    return
                left_s = self._found[0].until_s - self._clock()
                if left_s > 0:
                    self._changed.wait(left_s)
                    continue
                entry = self._found.pop(0)
            entry.process.close()
