"""Grants leases: events in, instructions out, no clock, no I/O.

Simulator and runtime run this very state machine. A function is queued at its groups when it is
ready, granted all of them at once, and released. On each group one function holds the lease and
one more may be admitted ahead. Who is next is the rule's decision; the arbiter adds what must hold
under any rule: exclusivity, all groups of a gang or none, and a bound on being overtaken.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from solver.dispatch import explain, invariants, outlook
from solver.dispatch.alarms import Alarms
from solver.dispatch.events import (
    Ended,
    Event,
    GroupAdded,
    GroupLost,
    JobLeft,
    PlanAdopted,
    Ready,
    Started,
    Withdrawn,
    Woke,
    Yielded,
)
from solver.dispatch.explain import Lease, Waiting
from solver.dispatch.instructions import Admit, Instruction, Prefetch, WakeAt, Yield
from solver.dispatch.lifecycle import Entry, Step
from solver.dispatch.rules import PlanOrderWithBackfill
from solver.dispatch.table import Group, Table
from solver.dispatch.views import Hold, Rule, Run
from solver.dispatch.yielding import YieldRule
from solver.errors import DispatchError

_STEPS: dict[type[Event], Step] = {
    Ended: Step.ENDED,
    Yielded: Step.YIELDED,
    Withdrawn: Step.WITHDRAWN,
}
"""How a function leaves its groups or their queues."""


@dataclass(frozen=True, slots=True)
class Fairness:
    """When a function has been passed over enough, and goes first under any rule."""

    max_overtaken: int = 16
    """Times younger functions may get a group it wants: more than the jobs that usually share a
    group, so that plan order is not disturbed."""
    max_stretch: int = 8
    """It goes first once it was overtaken for this many times its own length plus the longest
    overtaker's."""

    def is_urgent(self, entry: Entry) -> bool:
        """Whether the function goes first from now on."""
        limit_ticks = self.max_stretch * (entry.ref.duration_ticks + entry.longest_overtaker_ticks)
        return entry.num_overtaken >= self.max_overtaken or (entry.overtaken_ticks > limit_ticks)


class Arbiter:
    """Decides which LLM function gets which groups when.

    Parameters
    ----------
    rule
        Who is next where the plan in force names no rule; plan order with backfill by default.
    fairness
        Bound on being overtaken.
    yielding
        When a function gives its group up in the middle.
    lead_ticks
        How long before the expected end of a lease its successor is bound, if it is not the planned
        one: long enough for the round trip of an admission, short enough that something planned may
        still come first.

    Attributes
    ----------
    kept_idle_ticks : Mapping
        Group → ticks it stood idle on purpose so far although functions waited: for the plan, or
        for a gang.
    """

    def __init__(
        self,
        rule: Rule | None = None,
        *,
        fairness: Fairness | None = None,
        yielding: YieldRule | None = None,
        lead_ticks: int = 20,
    ) -> None:
        self._rule = PlanOrderWithBackfill() if rule is None else rule
        self._fairness = Fairness() if fairness is None else fairness
        self._yielding = YieldRule() if yielding is None else yielding
        self._lead_ticks = lead_ticks
        self._table = Table()
        self.kept_idle_ticks: Mapping[str, int] = self._table.kept_idle_ticks
        self._alarms = Alarms()
        self._now = 0

    def handle(self, event: Event, now: int) -> tuple[Instruction, ...]:
        """Take one event and say what to do.

        Parameters
        ----------
        event
            What happened.
        now
            Tick (1 ms) it happened at; one that lies before an earlier event's counts as that one.

        Raises
        ------
        DispatchError
            The event is illegal here; nothing has changed.
        """
        self._now = now = max(now, self._now)
        out: list[Instruction] = []
        dirty = self._apply(event, now, out)
        self._settle(dirty, now, out)
        if isinstance(event, GroupLost | Withdrawn):
            for name in dirty:
                self._table.drop_if_idle(name)
        tick = self._alarms.uncovered(self._table.is_to_wake)
        if tick is not None:
            out.append(WakeAt(tick))
        return tuple(out)

    def waiting(self, now: int, job: str | None = None) -> tuple[Waiting, ...]:
        """Functions that wait for a group, oldest first, each with the reason in plain words.

        Parameters
        ----------
        now
            Tick.
        job
            Whose; None: of all jobs.
        """
        return explain.waiting(self._table, self._urgent, now, job)

    def holder(self, group: str) -> Lease | None:
        """Lease in force on the group; None if it is free or unknown."""
        known = self._table.groups.get(group)
        return None if known is None else explain.lease(known.holder, self._now)

    def ahead(self, group: str) -> Lease | None:
        """Lease that follows on the group; None if nothing is admitted ahead."""
        known = self._table.groups.get(group)
        return None if known is None else explain.lease(known.ahead, self._now)

    def num_waiting(self, group: str) -> int:
        """Functions that wait for the group, one admitted ahead included."""
        known = self._table.groups.get(group)
        return 0 if known is None else len(known.queue) + (known.ahead is not None)

    def check(self) -> None:
        """Raise DispatchError if an invariant is broken."""
        invariants.check(self._table, self._fairness.max_overtaken, self._yielding.max_yields)

    def _apply(self, event: Event, now: int, out: list[Instruction]) -> list[str]:
        """Change the table; returns the groups that need a decision."""
        table = self._table
        match event:
            case Ready(ref):
                return table.nearest_first(table.enqueue(ref, now))
            case Started(function_id):
                self._start(table.find(function_id), now, out)
                return []
            case Ended(function_id) | Yielded(function_id) | Withdrawn(function_id):
                return self._depart(table.find(function_id), _STEPS[type(event)], now, out)
            case GroupAdded(name):
                return [table.add_group(name).name]
            case GroupLost(name):
                return self._lose_group(name, now, out)
            case JobLeft(name):
                table.jobs.pop(name, None)
                return table.plan.groups_of(name)
            case PlanAdopted(plan):
                table.adopt(plan)
                return list(table.groups)
            case Woke():
                return list(self._woken(now))

    def _start(self, entry: Entry, now: int, out: list[Instruction]) -> None:
        was_alive = entry.is_alive
        entry.move(Step.STARTED, now)
        if not was_alive:
            return
        entry.started_at = now
        for group in self._table.groups_of(entry):
            if group.holder is entry:
                self._prefetch(group, now, out)
                self._ask_to_yield(group, now, out)

    def _depart(self, entry: Entry, step: Step, now: int, out: list[Instruction]) -> list[str]:
        was_alive = entry.is_alive
        left = [g for g in self._table.groups_of(entry) if g.holder is entry] if was_alive else []
        self._table.depart(entry, step, now)
        for group in left:
            group.prefetched = None
            # Its start came before the news that its predecessor had ended.
            if group.holder is not None and group.holder.started_at is not None:
                self._prefetch(group, now, out)
        return list(entry.places) if was_alive else []

    def _lose_group(self, name: str, now: int, out: list[Instruction]) -> list[str]:
        """End what was granted there, as a whole; what queues there waits for its return."""
        group = self._table.groups.get(name)
        if group is None or not group.is_present:
            raise DispatchError(f"group {name!r} is not there; add it before it can be lost")
        group.is_present = False
        dirty = {name}
        for entry in (group.ahead, group.holder):
            if entry is not None:
                dirty.update(self._depart(entry, Step.GROUP_LOST, now, out))
        # A gang that can no longer be placed stops reserving the groups that are left.
        dirty.update(other for entry in group.queue.values() for other in entry.ref.groups)
        dirty.update(self._table.unbind(name))
        return sorted(dirty)

    def _woken(self, now: int) -> Iterator[str]:
        for tick, name in self._alarms.rung(now):
            if self._table.is_to_wake(tick, name):
                group = self._table.groups[name]
                group.wake_at = None if group.wake_at == tick else group.wake_at
                group.yield_at = None if group.yield_at == tick else group.yield_at
                yield name

    def _settle(self, dirty: Iterable[str], now: int, out: list[Instruction]) -> None:
        pending = list(dirty)
        while pending:
            group = self._table.groups.get(pending.pop(0))
            if group is None:
                continue
            entry = self._pick(group, now, out)
            if entry is not None:
                pending.extend(name for name in entry.ref.groups if name not in pending)
            elif self._ask_to_yield(group, now, out):
                pending.append(group.name)

    def _ask_to_yield(self, group: Group, now: int, out: list[Instruction]) -> bool:
        """Tell the holder to yield if the time for it has come; whether it was told."""
        holder, waiting = group.holder, self._waiting(group, now)
        if holder is None or waiting is None or holder.asked_at is not None:
            return False
        due = self._yielding.due(holder, waiting, now)
        if due is None or not self._table.makes_room(holder, waiting):
            return False
        if due > now:
            if group.yield_at != due:
                group.yield_at = due
                self._alarms.want(due, group.name)
            return False
        holder.asked_at = now
        out.append(Yield(holder.ref.id, holder.places))
        return True

    def _waiting(self, group: Group, now: int) -> Entry | None:
        """The function that would run next if the holder of the group left it now."""
        if group.holder is None or not group.holder.ref.is_yieldable or group.ahead is not None:
            return group.ahead
        urgent = self._urgent(group)
        candidates = self._candidates(group)
        if urgent is not None or not candidates:
            return urgent
        view = replace(outlook.view(self._table, group, candidates, now), free_at=now)
        choice = self._table.plan.rule(group.name, self._rule).choose(view)
        return None if isinstance(choice, Hold) else self._table.find(choice.id)

    def _pick(self, group: Group, now: int, out: list[Instruction]) -> Entry | None:
        """Grant the group's free place if the time for it has come."""
        self._table.count_idle(group, now)
        group.hold = None
        if not group.is_present or group.ahead is not None or not group.queue:
            group.wake_at = None
            return None
        entry, index = self._urgent(group), None
        if entry is None:
            entry, index = self._choose(group, now)
        elif not self._is_grantable(entry, group):
            entry = None
        if entry is not None and entry.ref.is_any and group.holder is not None:
            # Which of its groups is free first is known only when one is.
            entry = None
        if entry is None:
            group.idle_since = now if group.holder is None else None
            return None
        group.wake_at = None
        if index is not None:
            group.cursor.advance(index)
        for other in self._table.groups_of(entry):
            # What goes on after a yield had its turn before.
            if (other is not group or index is None) and not entry.ref.served_ticks:
                other.cursor.serve(entry.ref.job, entry.ref.op)
        self._grant(entry, group, now, out)
        return entry

    def _choose(self, group: Group, now: int) -> tuple[Entry | None, int | None]:
        """Ask the rule: function to grant, and its slot if its turn has come.

        A function that is not the very next one of the plan is bound late, since something
        planned may become ready until then.
        """
        candidates = self._candidates(group)
        if not candidates:
            group.wake_at = None
            return None, None
        view = outlook.view(self._table, group, candidates, now)
        rule = self._table.plan.rule(group.name, self._rule)
        choice = rule.choose(view)
        planned = next(iter(view.upcoming), None)
        is_planned = isinstance(choice, Run) and planned is not None and choice.id == planned.id
        index = planned.index if is_planned and planned is not None else None
        bind_at = view.free_at - self._lead_ticks
        is_early = group.holder is not None and now < bind_at
        if is_early and (index is None or not group.cursor.is_next(index)):
            self._wake(group, bind_at)
            return None, None
        if isinstance(choice, Hold):
            group.hold = choice if group.holder is None else None
            self._wake(group, max(choice.until, now + 1))
            return None, None
        if choice.id not in {candidate.id for candidate in view.queue}:
            raise DispatchError(
                f"rule {rule!r} chose {choice.id!r} for {group.name!r}, which is not among "
                f"its candidates; a rule may only choose from GroupView.queue"
            )
        return self._table.find(choice.id), index

    def _grant(self, entry: Entry, asking: Group, now: int, out: list[Instruction]) -> None:
        is_ahead = self._table.grant(entry, asking, now)
        out.append(Admit(entry.ref.id, entry.places, is_ahead))
        for group in self._table.groups_of(entry):
            group.idle_since = None
            if group.ahead is entry:
                self._prefetch(group, now, out)

    def _prefetch(self, group: Group, now: int, out: list[Instruction]) -> None:
        """Announce the job that follows the holder, unless it was announced or is the holder."""
        if group.holder is None:
            return
        following = self._following(group, group.holder.ref.job, now)
        if following is None or following == group.prefetched:
            return
        if following[0] != group.holder.ref.job:
            group.prefetched = following
            out.append(Prefetch(group.name, *following))

    def _following(self, group: Group, job: str, now: int) -> tuple[str, str] | None:
        """Job and op that come next, as far as can be told now."""
        if group.ahead is not None:
            return group.ahead.ref.job, group.ahead.ref.op
        candidates = self._candidates(group)
        if not candidates:
            return outlook.planned_after(self._table, group, job, now)
        view = outlook.view(self._table, group, candidates, now)
        choice = self._table.plan.rule(group.name, self._rule).choose(view)
        if isinstance(choice, Hold):
            return choice.job, choice.op
        ref = self._table.find(choice.id).ref
        return ref.job, ref.op

    def _candidates(self, group: Group) -> tuple[Entry, ...]:
        return tuple(e for e in group.queue.values() if self._is_grantable(e, group))

    def _wake(self, group: Group, tick: int) -> None:
        if group.wake_at != tick:
            group.wake_at = tick
            self._alarms.want(tick, group.name)

    def _urgent(self, group: Group) -> Entry | None:
        """Oldest function at the group that goes first under any rule."""
        for entry in group.queue.values():
            if self._fairness.is_urgent(entry) and self._table.is_placeable(entry):
                return entry
        return None

    def _is_grantable(self, entry: Entry, asking: Group) -> bool:
        """Whether its groups besides the asking one have a place and are not reserved."""
        return entry.ref.is_any or all(
            group is asking
            or (group.is_present and group.ahead is None and self._urgent(group) in {None, entry})
            for group in self._table.groups_of(entry)
        )


__all__ = ["Arbiter", "Fairness", "Lease", "Waiting"]
