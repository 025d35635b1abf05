"""What a group can expect: who could run now, and which planned ops come when."""

from __future__ import annotations

from collections.abc import Iterator

from solver.dispatch.events import Slot
from solver.dispatch.lifecycle import Entry
from solver.dispatch.table import Group, Table
from solver.dispatch.views import Candidate, GroupView, Planned


def view(table: Table, group: Group, candidates: tuple[Entry, ...], now: int) -> GroupView:
    """Show the group to a rule; `candidates` are the entries it may choose from, oldest first."""
    return GroupView(
        group=group.name,
        now=now,
        free_at=now if group.holder is None else group.holder.expected_end(now),
        spare_ticks=table.plan.spare_ticks(group.name),
        queue=tuple(_candidate(table, entry, now) for entry in candidates),
        upcoming=tuple(upcoming(table, group, candidates, now)),
    )


def upcoming(
    table: Table, group: Group, candidates: tuple[Entry, ...], now: int
) -> Iterator[Planned]:
    """Planned ops that are queued or expected, in planned order."""
    queued: dict[tuple[str, str], Entry] = {}
    for entry in candidates:
        queued.setdefault((entry.ref.job, entry.ref.op), entry)
    for index, slot in group.cursor.pending():
        if (slot.job, slot.op) in queued:
            entry = queued.pop((slot.job, slot.op))
            yield _planned(table, slot, index, entry.ready_at, 0, entry.ref.id)
            continue
        expected = _expected(table, slot, now)
        if expected is not None:
            yield _planned(table, slot, index, *expected, None)


def planned_after(table: Table, group: Group, job: str, now: int) -> tuple[str, str] | None:
    """First planned job and op that is expected, the given job's own left out."""
    for planned in upcoming(table, group, (), now):
        if planned.job != job:
            return planned.job, planned.op
    return None


def _expected(table: Table, slot: Slot, now: int) -> tuple[int, int] | None:
    """Tick the slot's op should be ready at, and its planned wait; None if it is not next."""
    job = table.jobs.get(slot.job)
    if job is None:
        return None
    op, ended_at = job.last_op, job.last_ended_at
    if job.alive:
        entry = next(iter(job.alive.values()))
        if len(job.alive) > 1 or entry.held_at is None:
            return None
        op, ended_at = entry.ref.op, entry.expected_end(now)
    if op is None or job.next_op(op, table.plan, slot.job) != slot.op:
        return None
    wait_ticks = table.plan.wait_ticks(slot.job, op)
    return None if wait_ticks is None else (ended_at + wait_ticks, wait_ticks)


def _planned(
    table: Table, slot: Slot, index: int, arrival: int, wait_ticks: int, function_id: str | None
) -> Planned:
    return Planned(
        job=slot.job,
        op=slot.op,
        duration_ticks=slot.duration_ticks,
        wait_ticks=wait_ticks,
        arrival=arrival,
        float_ticks=table.plan.float_ticks(slot.job),
        id=function_id,
        index=index,
    )


def _candidate(table: Table, entry: Entry, now: int) -> Candidate:
    job = table.jobs.get(entry.ref.job)
    waited = now - entry.ready_at + (0 if job is None else job.waited_ticks)
    began = entry.ready_at if job is None else job.first_ready_at
    return Candidate(
        id=entry.ref.id,
        job=entry.ref.job,
        op=entry.ref.op,
        duration_ticks=entry.ref.duration_ticks,
        ready_at=entry.ready_at,
        waited_ticks=waited,
        alone_ticks=max(now - began - waited, 0),
        float_ticks=table.plan.float_ticks(entry.ref.job),
    )
