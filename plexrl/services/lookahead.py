"""Lets an engine that nobody waits for begin with what its job is likely to ask for next.

After a rollout, or the reference's or critic's look at what it drew, that is the forward pass of
training on it, as far as that was seen before (`plexrl.services.expectations`); after training the
next rollout, if the scheduler told of it. Both are hints: whatever is asked for gives the same
result without them, later.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from dataflow.calls import GenerateOptions, LLMCall, TrainOptions
from dataflow.samples import Prompt
from plexrl.engines.forward import Forward
from plexrl.engines.frames import Begin, Generation, GiveUp
from plexrl.engines.protocol import DrawKey
from plexrl.engines.remote import EngineProcess
from plexrl.services.expectations import Expectations
from plexrl.services.occupancy import Occupancy


@dataclass(frozen=True, slots=True)
class Foretold:
    """A rollout that waits for nothing but the version which training makes now."""

    function_id: str
    call: LLMCall
    prompts: tuple[Prompt, ...]


@dataclass(frozen=True, slots=True)
class _Begun:
    """A rollout that an engine was told to begin with."""

    function_id: str
    name: str
    process: EngineProcess


class LookAhead:
    """What the engines of a group do while nobody asks; used under its lease.

    Parameters
    ----------
    occupancy
        Says whether somebody waits for the group.
    """

    def __init__(self, occupancy: Occupancy) -> None:
        self._occupancy = occupancy
        self._expectations = Expectations()
        self._names = map("ahead#{}".format, itertools.count())
        self._computing: EngineProcess | None = None
        """Engine that computes ahead, or has."""
        self._drew: EngineProcess | None = None
        """Engine of the last rollout."""
        self._begun: _Begun | None = None
        self._foretold: dict[str, Foretold] = {}
        """By job."""

    def begin(self, call: LLMCall) -> None:
        """A function begins."""
        self._expectations.begin(call)

    def foretell(self, foretold: Foretold) -> None:
        """A rollout is likely to follow; from any thread."""
        self._foretold[foretold.call.job] = foretold

    def use(self, process: EngineProcess) -> None:
        """An engine is used: another one that computes ahead gives that up.

        That one hears of no request, and two engines would compute at once.
        """
        if self._computing is not None and self._computing is not process:
            self._computing.tell(GiveUp())
            self._begun = None
        self._computing = None

    def rest(self) -> None:
        """The group is had for what runs elsewhere: no engine computes ahead."""
        if self._computing is not None:
            self._computing.tell(GiveUp())
        self._computing = self._begun = None

    def begun(self, function_id: str, process: EngineProcess) -> str:
        """Name of what the engine was told to draw ahead of this function; empty if nothing."""
        begun, self._begun = self._begun, None
        if begun is None or (begun.function_id, begun.process) != (function_id, process):
            return ""
        return begun.name

    @contextmanager
    def going_on(self, process: EngineProcess, work: Forward | Generation | None) -> Iterator[None]:
        """While an engine runs what it shall go on from with this work.

        It does not where that fails, or somebody waits for the group by then.
        """
        is_wanted = False
        try:
            yield
            is_wanted = not self._occupancy.is_awaited
        finally:
            if work is not None and is_wanted:
                self._computing = process
            elif work is not None:
                self._begun = None
                process.tell(GiveUp())

    def training_after(self, call: LLMCall) -> Forward | None:
        """The forward pass of the training that is likely to follow a function."""
        return None if self._occupancy.is_awaited else self._expectations.after(call)

    def note_drawn(self, samples: object, process: EngineProcess) -> None:
        """The rollout that runs has drawn these on this engine."""
        self._expectations.note_drawn(samples)
        self._drew = process

    def note_scored(self, call: LLMCall, samples: object) -> None:
        """The function that runs has scored these: the engine that drew them may go on."""
        if not self._expectations.note_scored(samples) or self._drew is None:
            return
        forward = self.training_after(call)
        if forward is not None:
            self._drew.tell(Begin(forward))
            self._computing = self._drew

    def note_trained(self, call: LLMCall, samples: Sequence[object], options: TrainOptions) -> None:
        """The function that runs trains a model on these samples."""
        self._expectations.note_trained(call, samples, options)

    def rollout_after(self, call: LLMCall, process: EngineProcess) -> Generation | None:
        """The rollout that follows training, which this engine draws as well."""
        foretold = self._foretold.pop(call.job, None)
        if foretold is None or self._occupancy.is_awaited:
            return None
        then = foretold.call
        is_next = (then.model, then.version) == (call.model, call.version + 1)
        if not (is_next and isinstance(then.options, GenerateOptions)):
            return None
        self._begun = _Begun(foretold.function_id, next(self._names), process)
        key = DrawKey(then.seed, then.iteration)
        return Generation(self._begun.name, foretold.prompts, then.options, key)

    def forget(self, job: str) -> None:
        """A job ended."""
        self._expectations.forget(job)
        self._foretold.pop(job, None)
