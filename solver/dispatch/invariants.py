"""What must hold after every event; run by tests, and by whoever suspects a bug."""

from __future__ import annotations

from collections.abc import Iterator

from solver.dispatch.lifecycle import Entry, Stage
from solver.dispatch.table import Group, Table
from solver.errors import DispatchError


def check(table: Table, max_overtaken: int, max_yields: int) -> None:
    """Check the table.

    One lease per group; a gang has all its groups or none, and where any will do exactly one, which
    was free; what yielded where any would do is bound to a group that is there; grants are ordered
    alike on all groups (so no two gangs wait for each other); nothing is overtaken more than
    `max_overtaken` times in each of its waits, of which yielding adds at most `max_yields`; a group
    that stands idle with work has a reason and a time to look again.

    Raises
    ------
    DispatchError
        An invariant is broken; the message names all that are.
    """
    broken = [
        *(line for group in table.groups.values() for line in _group_faults(table, group)),
        *(line for e in table.alive.values() for line in _entry_faults(table, e, max_overtaken)),
        *(
            f"{e.ref.id} yielded {e.num_yields} times"
            for e in table.alive.values()
            if e.num_yields > max_yields
        ),
        *_job_faults(table),
    ]
    if broken:
        raise DispatchError("the arbiter's table is inconsistent: " + "; ".join(broken))


def _group_faults(table: Table, group: Group) -> Iterator[str]:
    yield from _lease_faults(group)
    for entry in (group.holder, group.ahead, *group.queue.values()):
        if entry and table.alive.get(entry.ref.id) is not entry:
            yield f"{group.name} knows {entry.ref.id}, which is not alive"
    orders = [entry.order for entry in group.queue.values()]
    if orders != sorted(orders):
        yield f"the queue of {group.name} is not in order of readiness"
    if group.hold is not None and group.wake_at is None:
        yield f"{group.name} is kept for {group.hold.job}:{group.hold.op} without a time limit"


def _lease_faults(group: Group) -> Iterator[str]:
    holder, ahead = group.holder, group.ahead
    if ahead is not None and holder is None:
        yield f"{group.name} has a function ahead of nothing"
    if ahead is not None and holder is not None and holder.grant_order >= ahead.grant_order:
        yield f"{group.name} serves {ahead.ref.id} after a later grant"
    if not group.is_present and (holder or ahead):
        yield f"{group.name} is lost and yet leased"
    for entry in (holder, ahead):
        if entry and entry.stage not in {Stage.ADMITTED, Stage.STARTED}:
            yield f"{group.name} is leased to {entry.ref.id}, which is {entry.stage}"


def _entry_faults(table: Table, entry: Entry, max_overtaken: int) -> Iterator[str]:
    name = entry.ref.id
    yield from _place_faults(table, entry)
    groups = list(table.groups_of(entry))
    num_queued = sum(group.queue.get(name) is entry for group in groups)
    num_leased = sum(entry in (group.holder, group.ahead) for group in groups)
    num_held = sum(group.holder is entry for group in groups)
    expected = (len(groups), 0) if entry.stage is Stage.READY else (0, len(groups))
    if (num_queued, num_leased) != expected:
        yield f"{name} is {entry.stage}, queued at {num_queued} and leased on {num_leased} groups"
    if (entry.held_at is not None) != (num_held == len(groups)):
        yield f"{name} holds {num_held} of {len(groups)} groups, held_at is {entry.held_at}"
    if entry.num_overtaken > max_overtaken:
        yield f"{name} was overtaken {entry.num_overtaken} times"


def _place_faults(table: Table, entry: Entry) -> Iterator[str]:
    name, wanted = entry.ref.id, entry.ref.groups
    is_picked = entry.ref.is_any and entry.stage is not Stage.READY
    if entry.places != wanted and not (is_picked and set(entry.places) < set(wanted)):
        yield f"{name} is {entry.stage} and has {entry.places} of {wanted}"
    if is_picked and len(entry.places) != 1:
        yield f"{name} needs one of {wanted} and was granted {entry.places}"
    if is_picked and entry.held_at is None:
        yield f"{name} waits for {entry.places} although any of {wanted} would do"
    if entry.unbound is not None:
        (place,) = wanted
        if entry.ref.is_any or place not in entry.unbound.groups:
            yield f"{name} is bound to {place}, which is none of {entry.unbound.groups}"
        if not table.group(place).is_present:
            yield f"{name} is bound to {place}, which is lost with what it kept there"
    for other in set(wanted) - set(entry.places):
        if name in table.group(other).queue:
            yield f"{name} queues at {other} although it has {entry.places}"


def _job_faults(table: Table) -> Iterator[str]:
    for name, job in table.jobs.items():
        for function_id, entry in job.alive.items():
            if table.alive.get(function_id) is not entry:
                yield f"job {name} counts {function_id}, which is not alive"
