"""Lets an engine that nobody waits for begin with what its job is likely to ask for next.

After a rollout that is the forward pass of training on what it drew, as far as that was seen
before (`plexrl.services.expectations`); after training the next rollout, if the scheduler told of
it. Both are hints: whatever is asked for gives the same result without them, later.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from dataflow.calls import GenerateOptions, LLMCall, TrainOptions
from dataflow.samples import Prompt
from plexrl.engines.frames import Generation
from plexrl.engines.protocol import DrawKey
from plexrl.engines.remote import EngineProcess
from plexrl.services.expectations import Expectations
from plexrl.services.occupancy import Occupancy
from plexrl.services.rollouts import Stopped


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
            self._computing.foresee(None)
            self._begun = None
        self._computing = None

    def begun(self, function_id: str, process: EngineProcess) -> str:
        """Name of what the engine was told to draw ahead of this function; empty if nothing."""
        begun, self._begun = self._begun, None
        if begun is None or (begun.function_id, begun.process) != (function_id, process):
            return ""
        return begun.name

    def after_rollout(self, call: LLMCall, process: EngineProcess, found: object) -> None:
        """A rollout ended: the forward pass of training may follow."""
        forward = self._expectations.after(call, found)
        if forward is not None and not isinstance(found, Stopped) and self._is_idle():
            process.foresee(forward)
            self._computing = process

    def note_trained(self, call: LLMCall, samples: Sequence[object], options: TrainOptions) -> None:
        """The function that runs trains a model on these samples."""
        self._expectations.note_trained(call, samples, options)

    def after_training(self, call: LLMCall, process: EngineProcess) -> None:
        """An engine has trained the next version of the model that it also samples with."""
        foretold = self._foretold.pop(call.job, None)
        if foretold is None or not self._is_idle():
            return
        then = foretold.call
        options = then.options
        is_next = (then.model, then.version) == (call.model, call.version + 1)
        if is_next and isinstance(options, GenerateOptions):
            name = next(self._names)
            key = DrawKey(then.seed, then.iteration)
            process.foresee(Generation(name, foretold.prompts, options, key))
            self._computing = process
            self._begun = _Begun(foretold.function_id, name, process)

    def forget(self, job: str) -> None:
        """A job ended."""
        self._expectations.forget(job)
        self._foretold.pop(job, None)

    def _is_idle(self) -> bool:
        return not self._occupancy.is_awaited
