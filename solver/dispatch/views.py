"""What a rule sees of one group, and what it may answer: frozen values, times in ticks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Candidate:
    """A ready function that could get the group (a gang only if it could get all its groups)."""

    id: str
    job: str
    op: str
    duration_ticks: int
    ready_at: int
    waited_ticks: int
    """Ticks its job has waited for groups so far, this wait included."""
    alone_ticks: int
    """Ticks since its job began, those waits left out: what it would have taken alone."""
    float_ticks: int
    """Ticks per cycle its job can be delayed without lengthening the planned cycle."""

    @property
    def lag(self) -> float:
        """Time its job waited for groups ÷ its time alone."""
        return self.waited_ticks / max(self.alone_ticks, 1)


@dataclass(frozen=True, slots=True)
class Planned:
    """A planned op whose turn is to come and that is queued or expected."""

    job: str
    op: str
    duration_ticks: int
    wait_ticks: int
    """Planned ticks between the end of the job's previous op and the arrival of this one."""
    arrival: int
    """Tick it was queued at, or is expected at."""
    float_ticks: int
    """Ticks per cycle its job can be delayed without lengthening the planned cycle."""
    id: str | None
    """Its function if it is queued."""
    index: int
    """Its slot in the group's order."""


@dataclass(frozen=True, slots=True)
class GroupView:
    """One group at the moment of a decision."""

    group: str
    now: int
    free_at: int
    """Tick at which a function granted now could begin: later than now while another runs."""
    spare_ticks: int
    """Ticks per cycle the group can stand idle without lengthening the planned cycle."""
    queue: tuple[Candidate, ...]
    """Oldest first; never empty."""
    upcoming: tuple[Planned, ...]
    """In planned order. An op of an iteration that has not begun, or of a job that left, is no
    part of it."""


@dataclass(frozen=True, slots=True)
class Run:
    """Grant the group to this candidate."""

    id: str


@dataclass(frozen=True, slots=True)
class Hold:
    """Keep the group for a planned op until this tick at most."""

    until: int
    job: str
    op: str


Choice = Run | Hold


class Rule(Protocol):
    """Picks what a group does next; a pure function of what it sees."""

    def choose(self, view: GroupView) -> Choice:
        """Decide for one group whose queue is not empty."""
        ...
