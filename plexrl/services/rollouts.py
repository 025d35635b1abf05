"""Rollouts of a group that stop in the middle and go on: the one that runs, and those that wait."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from dataflow.calls import GenerateOptions, LLMCall
from dataflow.samples import Prompt, Sample
from plexrl.engines.protocol import DrawKey, Interrupted
from plexrl.engines.remote import EngineProcess
from plexrl.errors import EngineError


@dataclass(frozen=True, slots=True)
class Stopped:
    """A function gave its lease up in the middle; run again, it goes on."""


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A rollout that yielded its lease."""

    function_id: str
    process: EngineProcess
    """Engine that keeps what was drawn of its unfinished rows."""
    rollout: Interrupted


class Rollouts:
    """Runs rollouts so that they can yield, and keeps what they have drawn meanwhile.

    One function runs at a time, under the lease of the group; `ask` comes from any thread.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._numbers = itertools.count()
        self._waiting: dict[tuple[str, str], _Waiting] = {}
        """(job, op) → its rollout that yielded; a newer one of the same op takes its place."""
        self._holder = ""
        self._is_asked = False
        self._stop: Callable[[], None] | None = None

    def begin(self, function_id: str) -> None:
        """A function got the lease: from now on it may be asked to yield."""
        with self._lock:
            self._holder, self._is_asked = function_id, False

    def end(self) -> None:
        """The lease is over; who is asked now is asked too late."""
        with self._lock:
            self._holder, self._is_asked = "", False

    def ask(self, function_id: str) -> None:
        """Let a function yield at its next chance; one that does not hold the lease is ignored."""
        with self._lock:
            if function_id != self._holder:
                return
            self._is_asked = True
            stop = self._stop
        if stop is not None:
            stop()

    def run(
        self,
        call: LLMCall,
        process: EngineProcess,
        inputs: Sequence[Prompt] | Sequence[Sample],
        options: GenerateOptions,
    ) -> tuple[Sample, ...] | Stopped:
        """Begin a rollout under the lease, or go on with it, until it ends or yields."""
        function_id = self._holder
        name = f"{function_id}#{next(self._numbers)}"
        before = self._waiting.pop((call.job, call.op), None)
        work: Sequence[Prompt] | Sequence[Sample] | Interrupted = inputs
        if before is not None and before.function_id == function_id:
            work = before.rollout
        elif before is not None:
            _discard(before)
        with self._lock:
            self._stop = lambda: process.stop(name)
            is_asked = self._is_asked
        if is_asked:
            process.stop(name)
        try:
            found = process.generate_until(name, work, options, DrawKey(call.seed, call.iteration))
        finally:
            with self._lock:
                self._stop = None
        if not isinstance(found, Interrupted):
            return found
        self._waiting[call.job, call.op] = _Waiting(function_id, process, found)
        return Stopped()

    def forget(self, job: str) -> None:
        """Give up what is kept for a job; nothing may run."""
        for key in [key for key in self._waiting if key[0] == job]:
            _discard(self._waiting.pop(key))


def _discard(waiting: _Waiting) -> None:
    # An engine that is gone, or goes now, keeps nothing.
    if waiting.process.is_alive:
        with suppress(EngineError):
            waiting.process.discard(waiting.rollout.name)
