"""Functions of a group that stop in the middle: rollouts, which go on later, and training."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from dataflow.calls import GenerateOptions, LLMCall, TrainOptions
from dataflow.phases import Phase
from dataflow.samples import Prompt, Sample, SampleId
from plexrl.engines.calling import SharedArena
from plexrl.engines.forward import Forward
from plexrl.engines.frames import Generation
from plexrl.engines.protocol import (
    DrawKey,
    Interrupted,
    StoredTraining,
    TrainBatch,
    Unfinished,
)
from plexrl.engines.remote import EngineProcess
from plexrl.errors import EngineError


@dataclass(frozen=True, slots=True)
class Stopped:
    """A function gave its lease up in the middle; run again, it goes on."""


@dataclass(frozen=True, slots=True)
class Ahead:
    """What an engine computes before it is asked for it, as far as a rollout is concerned."""

    begun: str = ""
    """Name under which it was told to begin with the rollout; empty: it was not."""
    then: Forward | None = None
    """What it begins with when the rollout has ended."""


NOTHING_AHEAD = Ahead()


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A rollout that yielded its lease."""

    function_id: str
    process: EngineProcess
    """Engine that keeps what was drawn of its unfinished rows."""
    rollout: Interrupted


@dataclass(frozen=True, slots=True)
class _Running:
    """A generation or training that runs."""

    job: str
    process: EngineProcess
    name: str
    is_cancellable: bool
    """Whether samples of it may be ended."""


class Rollouts:
    """Runs rollouts so that they can yield, and keeps what they have drawn meanwhile; training too.

    One function runs at a time, under the lease of the group; `ask` and `cancel` come from any
    thread.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._numbers = itertools.count()
        self._waiting: dict[tuple[str, str], _Waiting] = {}
        """(job, op) → its rollout that yielded; a newer one of the same op takes its place."""
        self._holder = ""
        self._is_asked = False
        self._running: _Running | None = None
        self._cancelled: dict[str, frozenset[SampleId]] = {}
        """Job → samples that end with the token they are at, whenever they are drawn."""

    def begin(self, function_id: str) -> None:
        """A function got the lease: from now on it may be asked to yield."""
        with self._lock:
            self._holder, self._is_asked = function_id, False

    def end(self) -> None:
        """The lease is over; who is asked now is asked too late."""
        with self._lock:
            self._holder, self._is_asked = "", False

    def ask(self, function_id: str) -> None:
        """Let a function yield at its next chance; one that does not hold the lease is ignored.

        Training cannot go on later: it ends with an error and leaves the state as it was.
        """
        with self._lock:
            if function_id != self._holder:
                return
            self._is_asked = True
            running = self._running
        if running is not None:
            running.process.stop(running.name)

    def note_cancelled(self, job: str, samples: frozenset[SampleId]) -> None:
        """Samples of a job shall end: all there ever were; `cancel` tells who draws now."""
        if samples:
            self._cancelled[job] = samples

    def cancel(self, job: str) -> None:
        """End the cancelled samples of a job, if they are being drawn."""
        with self._lock:
            running = self._running
        if running is not None and running.job == job and running.is_cancellable:
            running.process.cancel(running.name, self._cancelled.get(job, frozenset()))

    def unfinished(self, job: str) -> tuple[Unfinished, ...]:
        """Samples of a job that are being drawn right now."""
        with self._lock:
            running = self._running
        if running is None or running.job != job:
            return ()
        return running.process.unfinished()

    def run(
        self,
        call: LLMCall,
        process: EngineProcess,
        inputs: Sequence[Prompt] | Sequence[Sample],
        options: GenerateOptions,
        ahead: Ahead = NOTHING_AHEAD,
    ) -> tuple[Sequence[Sample] | Stopped, float]:
        """Begin a rollout under the lease, or go on with it, until it ends or yields.

        Parameters
        ----------
        call, process, inputs, options
            The rollout, and the engine it runs on.
        ahead
            What the engine may have begun, and begins with then.

        Returns
        -------
        tuple
            What was drawn, and the seconds of it before the lease.
        """
        function_id = self._holder
        before = self._waiting.pop((call.job, call.op), None)
        work: Sequence[Prompt] | Sequence[Sample] | Interrupted = inputs
        if before is not None and before.function_id == function_id:
            work = before.rollout
        elif before is not None:
            _discard(before)
        with self._stoppable(call, process) as name:
            if call.job in self._cancelled:
                self.cancel(call.job)
            key, ahead_s = DrawKey(call.seed, call.iteration), 0.0
            # What was drawn of a cancelled sample is more than it should have.
            is_whole = not isinstance(work, Interrupted) and call.job not in self._cancelled
            if ahead.begun and is_whole:
                drawn = process.generate_foreseen(
                    name, ahead.begun, inputs, options, key, ahead.then
                )
                found, ahead_s = drawn.found, drawn.ahead_s
            else:
                found = process.generate_until(name, work, options, key, ahead.then)
        if not isinstance(found, Interrupted):
            return found, ahead_s
        self._waiting[call.job, call.op] = _Waiting(function_id, process, found)
        return Stopped(), ahead_s

    def train(
        self,
        call: LLMCall,
        process: EngineProcess,
        batch: TrainBatch,
        options: TrainOptions,
        arena: SharedArena,
        then: Generation | None = None,
    ) -> StoredTraining:
        """Train under the lease and store the state in an arena; `ask` ends it.

        Then the engine goes on with what is likely to follow.

        Raises
        ------
        EngineError
            It failed or was asked to end; the state in the engine is the one from before.
        """
        with self._stoppable(call, process) as name:
            return process.train_and_store(batch, options, name, arena, then)

    @contextmanager
    def _stoppable(self, call: LLMCall, process: EngineProcess) -> Iterator[str]:
        """Name under which what runs can be asked to stop, which may have happened already."""
        name = f"{self._holder}#{next(self._numbers)}"
        # Prompts of an evaluation are those of another stream.
        running = _Running(call.job, process, name, call.function is Phase.ROLLOUT)
        with self._lock:
            self._running = running
            is_asked = self._is_asked
        if is_asked:
            process.stop(name)
        try:
            yield name
        finally:
            with self._lock:
                self._running = None

    def forget(self, job: str) -> None:
        """Give up what is kept for a job; nothing may run."""
        self._cancelled.pop(job, None)
        for key in [key for key in self._waiting if key[0] == job]:
            _discard(self._waiting.pop(key))


def _discard(waiting: _Waiting) -> None:
    # An engine that is gone, or goes now, keeps nothing.
    if waiting.process.is_alive:
        with suppress(EngineError):
            waiting.process.discard(waiting.rollout.name)
