"""The arbiter's answers to people: who holds what, and what each function waits for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from solver.dispatch import outlook
from solver.dispatch.events import TICKS_PER_S, FunctionRef
from solver.dispatch.lifecycle import Entry, Stage
from solver.dispatch.table import Group, Table


@dataclass(frozen=True, slots=True)
class Lease:
    """A granted function."""

    function: FunctionRef
    held_ticks: int | None
    """Tick since which all its groups are its own; None while it is ahead."""
    is_started: bool
    """Whether its start was seen."""
    expected_end_ticks: int
    """Tick its lease should end at."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """A function that waits for its groups."""

    id: str
    job: str
    op: str
    groups: tuple[str, ...]
    since: int
    """Tick it was ready at."""
    reason: str
    """What it waits for, in plain words."""


def lease(entry: Entry | None, now: int) -> Lease | None:
    """Show a granted function; None for none."""
    if entry is None:
        return None
    return Lease(
        function=entry.ref,
        held_ticks=entry.held_at,
        is_started=entry.started_at is not None,
        expected_end_ticks=entry.expected_end(now),
    )


def waiting(
    table: Table, urgent: Callable[[Group], Entry | None], now: int, job: str | None = None
) -> tuple[Waiting, ...]:
    """Show the functions that wait, oldest first, of one job or of all.

    `urgent` names what a group is reserved for.
    """
    progress = None if job is None else table.jobs.get(job)
    alive = table.alive if job is None else {} if progress is None else progress.alive
    entries = (e for e in alive.values() if e.stage is Stage.READY or e.held_at is None)
    return tuple(
        Waiting(
            id=entry.ref.id,
            job=entry.ref.job,
            op=entry.ref.op,
            groups=entry.ref.groups,
            since=entry.ready_at,
            reason=_reason(table, entry, urgent, now),
        )
        for entry in sorted(entries, key=lambda entry: entry.order)
    )


def _reason(table: Table, entry: Entry, urgent: Callable[[Group], Entry | None], now: int) -> str:
    groups = list(table.groups_of(entry))
    if entry.ref.is_any and table.is_placeable(entry):
        # The one expected to be free first stands for all of them.
        groups = [min((g for g in groups if g.is_present), key=lambda g: _free_at(g, now))]
    for group in groups:
        if not group.is_present:
            return f"{group.name} is not there"
    if entry.stage is not Stage.READY:
        busy = next(group for group in groups if group.holder is not entry)
        return f"next on {busy.name}: {_holds(busy, now)}"
    for group in groups:
        reserved = urgent(group)
        if reserved is not None and reserved is not entry:
            return f"{group.name} is reserved for {_name(reserved)}, which was passed over too long"
    for group in groups:
        if group.ahead is not None:
            return f"planned after {_name(group.ahead)}, which is next on {group.name}"
    kept = next((g for g in groups if g.holder is not None or g.hold is not None), None)
    return "its turn comes now" if kept is None else _behind(table, entry, kept, now)


def _behind(table: Table, entry: Entry, group: Group, now: int) -> str:
    planned = next(outlook.upcoming(table, group, tuple(group.queue.values()), now), None)
    if planned is not None and planned.id != entry.ref.id:
        if planned.id is None:
            away = max(planned.arrival - now, 0) / TICKS_PER_S
            return f"planned after {planned.job}:{planned.op}, expected in {away:.1f} s"
        return f"planned after {planned.job}:{planned.op}"
    return _holds(group, now)


def _holds(group: Group, now: int) -> str:
    if group.holder is None:
        return f"{group.name} is free"
    left = (group.holder.expected_end(now) - now) / TICKS_PER_S
    until = "and should end any moment" if left < 0.05 else f"until about +{left:.1f} s"
    return f"job {group.holder.ref.job} holds {group.name} {until}"


def _free_at(group: Group, now: int) -> int:
    return now if group.holder is None else group.holder.expected_end(now)


def _name(entry: Entry) -> str:
    return f"{entry.ref.job}:{entry.ref.op}"
