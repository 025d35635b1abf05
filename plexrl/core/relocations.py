"""Jobs on their way off a group: asked to step aside, letting go of it, waiting for another.

A pure table. A job leaves a group at the end of an iteration, or at once and then replays the
one it was in. Its versions are written to the store and dropped before it may run elsewhere, so
that no two groups ever hold the newest version of one job.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from plexrl.core.placement import Placement
from plexrl.errors import PlexRLError


class Aim(StrEnum):
    """What shall become of a job once it is off its group."""

    PAUSE = "pause"
    """It rests until somebody wants it to go on."""
    MOVE = "move"
    """It goes on, on another group or wherever there is room."""


class Step(StrEnum):
    """How far a job is on its way."""

    ASKED = "asked"
    """Its driver knows and ends the iteration first."""
    LETTING_GO = "letting go"
    """Nothing of it runs any more; its groups write what they hold of it."""
    WAITING = "waiting"
    """It is off its groups, and no group has room for it yet."""


TRANSITIONS: Mapping[Step, frozenset[Step]] = {
    # A job that rests is off its groups already.
    Step.ASKED: frozenset({Step.LETTING_GO, Step.WAITING}),
    Step.LETTING_GO: frozenset({Step.WAITING}),
    Step.WAITING: frozenset(),
}
"""Step → steps that may follow; from each of them the way may also end."""


@dataclass(frozen=True, slots=True)
class Relocation:
    """One job on its way."""

    job: str
    aim: Aim
    reason: str
    """Why, in the words of whoever asked."""
    target: str = ""
    """Group it shall go to; empty: wherever there is room."""
    step: Step = Step.ASKED
    holders: frozenset[str] = frozenset()
    """Groups that still hold states of it."""
    trouble: str = ""
    """Why it goes no further right now; empty if it does."""

    def __str__(self) -> str:
        """The way in plain words."""
        where = self.target or "any group with room"
        aim = "pauses" if self.aim is Aim.PAUSE else f"goes on, on {where},"
        match self.step:
            case Step.ASKED:
                told = f"{aim} after its iteration"
            case Step.LETTING_GO:
                told = f"{aim} once {', '.join(sorted(self.holders))} wrote its states"
            case Step.WAITING:
                told = f"{aim} once there is room"
        return told + "".join(f" ({text})" for text in (self.reason, self.trouble) if text)


@dataclass(frozen=True, slots=True)
class Resampling:
    """A job that stays at home and shall sample elsewhere once its iteration has ended."""

    placement: Placement
    """Where it shall be."""
    reason: str
    """Why, in the words of whoever asked."""
    is_ordered: bool = False
    """Whether it waits for room if there is none, instead of staying where it is."""

    def __str__(self) -> str:
        """The change in plain words."""
        where = ", ".join(self.placement.guests) or "its home"
        return f"samples on {where} after its iteration ({self.reason})"


class RelocationTable:
    """Relocations by job, why those that arrived at rest do so, and who shall sample elsewhere."""

    def __init__(self) -> None:
        self._rows: dict[str, Relocation] = {}
        self._rests: dict[str, str] = {}
        self._resamplings: dict[str, Resampling] = {}

    def __contains__(self, job: str) -> bool:
        return job in self._rows

    def get(self, job: str) -> Relocation | None:
        """The way of a job; None if it stays where it is."""
        return self._rows.get(job)

    def has_left(self, job: str) -> bool:
        """Whether nothing of a job runs any more on the groups it leaves."""
        row = self._rows.get(job)
        return row is not None and row.step is not Step.ASKED

    def num_held_by(self, group: str) -> int:
        """How many jobs that leave a group have states there that it has to write."""
        return sum(group in row.holders for row in self._rows.values())

    def at(self, step: Step) -> tuple[Relocation, ...]:
        """Relocations at one step, in the order they were asked for."""
        return tuple(row for row in self._rows.values() if row.step is step)

    def ask(self, job: str, aim: Aim, reason: str, target: str = "") -> Relocation:
        """Want a job off its group; of one on its way already, change the aim."""
        known = self._rows.get(job)
        row = Relocation(job, aim, reason, target)
        if known is not None:
            row = replace(row, step=known.step, holders=known.holders)
        self._resamplings.pop(job, None)
        self._rows[job] = row
        return row

    def stepped_aside(self, job: str, holders: frozenset[str]) -> Relocation:
        """Its driver has ended; these groups hold states of it."""
        return self._move(job, Step.LETTING_GO, holders=holders)

    def let_go(self, job: str, group: str, trouble: str = "") -> bool:
        """A group let go of a job, or could not; returns whether none holds it any more."""
        row = self._rows[job]
        holders = row.holders if trouble else row.holders - {group}
        self._rows[job] = replace(row, holders=holders, trouble=trouble)
        return not holders

    def wait(self, job: str, trouble: str) -> None:
        """It is off its groups but has nowhere to go."""
        row = self._rows[job]
        if row.step is Step.WAITING:
            self._rows[job] = replace(row, trouble=trouble)
        else:
            self._move(job, Step.WAITING, trouble=trouble)

    def end(self, job: str) -> None:
        """It arrived somewhere, or has ended."""
        self._rows.pop(job, None)
        self._rests.pop(job, None)
        self._resamplings.pop(job, None)

    def rest(self, job: str) -> None:
        """It is off its groups and stays so."""
        self._rests[job] = self._rows.pop(job).reason

    def resample(self, job: str, wanted: Resampling) -> None:
        """Want a job that is not on its way to sample elsewhere."""
        self._resamplings[job] = wanted

    def resampling(self, job: str) -> Resampling | None:
        """Where a job shall sample once its iteration has ended; None if nobody asked."""
        return self._resamplings.get(job)

    def resampled(self, job: str) -> None:
        """It samples where it shall, or nobody wants that any more."""
        self._resamplings.pop(job, None)

    def why_resting(self, job: str) -> str:
        """Why a job rests, in the words of whoever asked; empty if it does not, or nobody said."""
        return self._rests.get(job, "")

    def _move(
        self, job: str, step: Step, *, holders: frozenset[str] = frozenset(), trouble: str = ""
    ) -> Relocation:
        row = self._rows[job]
        if step not in TRANSITIONS[row.step]:
            raise PlexRLError(f"relocation of job {job!r} is {row.step} and cannot be {step}")
        self._rows[job] = replace(row, step=step, holders=holders, trouble=trouble)
        return self._rows[job]
