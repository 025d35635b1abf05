"""What an engine process computes before it is asked for it, while nobody asks for anything.

The forward pass of training on what was drawn last, and the rollout that follows training: both
are what a job asks for next where it has the group to itself. Asked for anything else, the engine
gives them up at its next token or layer. What is asked for gives the same bits either way.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass

from dataflow.samples import Sample, SampleId
from plexrl.engines.foresight import GivenUpError
from plexrl.engines.forward import Forward
from plexrl.engines.frames import BreakName, Generation, Request
from plexrl.engines.inbox import Inbox
from plexrl.engines.protocol import Break, Interrupted
from plexrl.engines.torch_engine import TorchEngine

logger = logging.getLogger("plexrl.engines")

UNASKED_S = 5.0
"""Seconds that a rollout is drawn ahead at most: who wants it asks within milliseconds."""

_ARENAS = frozenset({"attach", "detach"})
"""Requests that come before any other, and change nothing that was computed."""
_BEFORE_TRAINING = _ARENAS | {"train"}
"""Requests that training begins with."""


@dataclass(frozen=True, slots=True)
class _Drawn:
    """A generation that was begun ahead, as far as it came."""

    generation: Generation
    found: Sequence[Sample] | Interrupted
    seconds: float
    """Before it was asked for."""


class LookAhead:
    """Computes ahead with the engine of this process.

    Parameters
    ----------
    engine
        The engine; it has no other ranks.
    inbox
        Says when something is asked for.

    Attributes
    ----------
    samples : sequence of Sample
        What the last request drew to its end, or scored; empty if it did something else.
    drawn_s : float
        Seconds of the last generation that were computed before it was asked for.
    """

    def __init__(self, engine: TorchEngine, inbox: Inbox) -> None:
        self._engine = engine
        self._inbox = inbox
        self._drawn: _Drawn | None = None
        self._forward_s = 0.0
        """Seconds of the last forward pass computed ahead."""
        self.samples: Sequence[Sample] = ()
        self.drawn_s = 0.0

    def give_up(self) -> None:
        """Forget what was computed."""
        self._discard()
        self._engine.forget_foreseen()

    def compute(self, work: Forward | Generation) -> None:
        """Begin with what is likely to follow."""
        began_s = time.monotonic()
        try:
            if isinstance(work, Forward):
                self._engine.foresee(self.samples, work, self._may_train)
            else:
                found = self._draw(work, began_s)
        except GivenUpError:
            return
        except Exception:
            # It shows when it is asked for; now nobody waits for an answer.
            logger.debug("what follows cannot be computed ahead", exc_info=True)
            return
        seconds = (self._inbox.asked_s or time.monotonic()) - began_s
        if isinstance(work, Forward):
            self._forward_s = seconds
        else:
            self._drawn = _Drawn(work, found, seconds)

    @property
    def trained_s(self) -> float:
        """Seconds of the last training that were computed before it was asked for."""
        return self._forward_s if self._engine.took_foreseen else 0.0

    def take(self, request: Request) -> Sequence[Sample] | Interrupted | None:
        """What was drawn ahead of a request; None: nothing.

        Whatever else is asked for, what was drawn is given up.
        """
        self.drawn_s = 0.0
        drawn, name = self._drawn, taking(request)
        if drawn is None or name is None or name.foreseen != drawn.generation.name:
            self._discard()
            return None
        self._drawn, self.drawn_s = None, drawn.seconds
        return self._rest_of(drawn, name.name)

    def _discard(self) -> None:
        drawn, self._drawn = self._drawn, None
        if drawn is not None and isinstance(drawn.found, Interrupted):
            self._engine.discard(drawn.found.name)

    def _draw(self, generation: Generation, began_s: float) -> Sequence[Sample] | Interrupted:
        def is_asked() -> bool:
            return self._may_not_draw(generation, began_s)

        def cancelled() -> frozenset[SampleId]:
            frame = self._inbox.look()
            name = taking(frame) if isinstance(frame, Request) else None
            return frozenset() if name is None else self._inbox.cancelled_of(name.name)

        stop = Break(generation.name, is_asked, cancelled=cancelled)
        return self._engine.generate_until(
            stop, generation.inputs, generation.options, generation.key
        )

    def _may_not_draw(self, generation: Generation, began_s: float) -> bool:
        """Whether drawing ahead shall stop, to go on later.

        Raises
        ------
        GivenUpError
            It is not wanted.
        """
        frame = self._inbox.look()
        if frame is None:
            if time.monotonic() - began_s > UNASKED_S:
                raise GivenUpError
            return False
        if isinstance(frame, Request):
            name = taking(frame)
            if name is not None and name.foreseen == generation.name:
                return self._inbox.is_stopped(name.name)
            if frame.method in _ARENAS:
                return True
        raise GivenUpError

    def _rest_of(self, drawn: _Drawn, name: str) -> Sequence[Sample] | Interrupted:
        """What was drawn, to its end unless the one who asked for it wants it to stop."""
        if not isinstance(drawn.found, Interrupted) or self._inbox.is_stopped(name):
            return drawn.found
        stop = Break(
            name,
            lambda: self._inbox.is_stopped(name),
            cancelled=lambda: self._inbox.cancelled_of(name),
        )
        generation = drawn.generation
        return self._engine.generate_until(stop, drawn.found, generation.options, generation.key)

    def _may_train(self) -> bool:
        """Whether nothing was asked for but what leads to training."""
        frame = self._inbox.look()
        if isinstance(frame, Request):
            return frame.method in _BEFORE_TRAINING
        return frame is None


def taking(request: Request) -> BreakName | None:
    """Name of the generation that a request asks for, if it may take what was drawn ahead."""
    names = [a for a in request.args if isinstance(a, BreakName) and a.foreseen]
    return names[0] if names else None
