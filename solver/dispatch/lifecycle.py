"""Life of one LLM function in the arbiter: legal moves are data, an illegal one raises."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType

from solver.dispatch.events import TICKS_PER_S, FunctionRef
from solver.errors import DispatchError


class Stage(StrEnum):
    """Where a function is."""

    READY = "ready"
    """Queued at each of its groups."""
    ADMITTED = "admitted"
    """Granted its groups; not seen to start yet."""
    STARTED = "started"
    ENDED = "ended"
    """Released after its start was seen."""
    WITHDRAWN = "withdrawn"
    """Cancelled while queued."""
    RECALLED = "recalled"
    """Released before its start was seen; the news of its start may still be on the way."""
    YIELDED = "yielded"
    """Released in the middle; it comes back."""
    LOST = "lost"
    """A group it was granted is gone."""


class Step(StrEnum):
    """What moves a function on."""

    READY = "ready"
    ADMIT = "admit"
    STARTED = "started"
    ENDED = "ended"
    YIELDED = "yielded"
    WITHDRAWN = "withdrawn"
    GROUP_LOST = "group lost"


TRANSITIONS = MappingProxyType(
    {
        (None, Step.READY): Stage.READY,
        (Stage.READY, Step.ADMIT): Stage.ADMITTED,
        (Stage.READY, Step.WITHDRAWN): Stage.WITHDRAWN,
        (Stage.ADMITTED, Step.STARTED): Stage.STARTED,
        (Stage.ADMITTED, Step.ENDED): Stage.RECALLED,
        (Stage.ADMITTED, Step.WITHDRAWN): Stage.RECALLED,
        (Stage.ADMITTED, Step.GROUP_LOST): Stage.LOST,
        (Stage.STARTED, Step.ENDED): Stage.ENDED,
        (Stage.STARTED, Step.YIELDED): Stage.YIELDED,
        (Stage.STARTED, Step.GROUP_LOST): Stage.LOST,
        # The same key runs again after a failure, a recomputation or a rollback.
        (Stage.ENDED, Step.READY): Stage.READY,
        (Stage.WITHDRAWN, Step.READY): Stage.READY,
        (Stage.RECALLED, Step.READY): Stage.READY,
        (Stage.LOST, Step.READY): Stage.READY,
        (Stage.YIELDED, Step.READY): Stage.READY,
        # The cancellation overtakes the worker's news of the start, or of start and end.
        (Stage.RECALLED, Step.STARTED): Stage.RECALLED,
        (Stage.RECALLED, Step.ENDED): Stage.RECALLED,
        (Stage.RECALLED, Step.WITHDRAWN): Stage.RECALLED,
        # A dying worker's last messages, and the scheduler's release of its tasks, come in any
        # order with the news that the group is gone.
        (Stage.LOST, Step.STARTED): Stage.LOST,
        (Stage.LOST, Step.ENDED): Stage.LOST,
        (Stage.LOST, Step.YIELDED): Stage.LOST,
        (Stage.LOST, Step.WITHDRAWN): Stage.LOST,
    }
)
"""(stage, step) → next stage; a pair that is not here is illegal."""

ALIVE = frozenset({Stage.READY, Stage.ADMITTED, Stage.STARTED})
HISTORY_LENGTH = 16


@dataclass(slots=True, eq=False)
class Entry:
    """One function, with what fairness and prediction need to know about it."""

    ref: FunctionRef
    order: int
    """Rank by readiness: smaller is older."""
    places: tuple[str, ...]
    """Groups it queues at or was granted; the same unless any one of them will do."""
    ready_at: int
    """Ticks."""
    stage: Stage | None = None
    grant_order: int = 0
    """Rank of its admission: on each group an earlier grant goes first."""
    held_at: int | None = None
    """Tick since which all its groups are its own; None while it is queued or admitted ahead."""
    started_at: int | None = None
    """Ticks."""
    num_overtaken: int = 0
    """How often a younger function got a group this one wants."""
    overtaken_ticks: int = 0
    """Expected lease time of those, and time a group stood idle for the plan meanwhile."""
    longest_overtaker_ticks: int = 0
    num_yields: int = 0
    """Times it gave its groups up in the middle."""
    unbound: FunctionRef | None = None
    """Itself as it would be without what it kept on one of its groups when it yielded there; None
    unless any of several would do otherwise."""
    asked_at: int | None = None
    """Tick it was told to yield at."""
    history: deque[tuple[int, Step]] = field(default_factory=lambda: deque(maxlen=HISTORY_LENGTH))

    @property
    def is_alive(self) -> bool:
        """Whether it waits for a group or holds one."""
        return self.stage in ALIVE

    def check(self, step: Step) -> Stage:
        """Stage the step leads to.

        Raises
        ------
        DispatchError
            The step is illegal here; the message has the history.
        """
        target = TRANSITIONS.get((self.stage, step))
        if target is None:
            past = ", ".join(f"{name} at {tick / TICKS_PER_S:.3f} s" for tick, name in self.history)
            raise DispatchError(
                f"function {self.ref.id!r} of job {self.ref.job!r} is {self.stage}, which forbids "
                f"{step!s}; its history: {past or 'empty'}. Send each event once, in the order in "
                "which things happened"
            )
        return target

    def move(self, step: Step, now: int) -> None:
        """Take the step; raises DispatchError like `check`."""
        self.stage = self.check(step)
        self.history.append((now, step))

    def expected_end(self, now: int) -> int:
        """Tick its lease should end at; an overdue one, or one told to yield, should end now."""
        if self.asked_at is not None:
            return now
        begin = self.started_at if self.started_at is not None else self.held_at
        return max(now, (now if begin is None else begin) + self.ref.duration_ticks)
