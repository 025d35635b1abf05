"""The arbiter's memory: which functions queue at, hold or follow on which group."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from solver.dispatch.events import DispatchPlan, FunctionRef
from solver.dispatch.lifecycle import Entry, Stage, Step
from solver.dispatch.orders import Cursor, PlanIndex
from solver.dispatch.progress import Progress
from solver.dispatch.views import Hold
from solver.errors import DispatchError

MAX_DEPARTED = 4096
"""Functions remembered after their end, so that late events find their history."""


@dataclass(slots=True, eq=False)
class Group:
    """One group: a queue, the function that holds it, and the one admitted ahead."""

    name: str
    cursor: Cursor
    is_present: bool = False
    queue: dict[str, Entry] = field(default_factory=dict)
    """Ready functions that want it, oldest first."""
    holder: Entry | None = None
    ahead: Entry | None = None
    last_served: tuple[str, str] | None = None
    """Job and op granted last."""
    hold: Hold | None = None
    """Planned op it is kept idle for."""
    idle_since: int | None = None
    """Tick since which it stands idle although functions queue."""
    wake_at: int | None = None
    """Tick a decision was put off to."""
    yield_at: int | None = None
    """Tick at which its holder may have to yield."""
    prefetched: tuple[str, str] | None = None
    """Job and op announced since the lease began."""


class Table:
    """Functions, groups and jobs; every change goes through `Entry.move`."""

    def __init__(self) -> None:
        self.groups: dict[str, Group] = {}
        self.alive: dict[str, Entry] = {}
        self.jobs: dict[str, Progress] = {}
        self.plan = PlanIndex(DispatchPlan())
        self._departed: OrderedDict[str, Entry] = OrderedDict()
        self._num_ready = 0
        self._num_grants = 0
        self.kept_idle_ticks: Counter[str] = Counter()

    def count_idle(self, group: Group, now: int) -> None:
        """Time the group stood idle although functions queued counts as being overtaken."""
        if group.idle_since is None:
            return
        for entry in group.queue.values():
            entry.overtaken_ticks += max(now - max(group.idle_since, entry.ready_at), 0)
        self.kept_idle_ticks[group.name] += now - group.idle_since
        group.idle_since = None

    def group(self, name: str) -> Group:
        """The group, made on first mention (absent until it is added)."""
        group = self.groups.get(name)
        if group is None:
            group = Group(name, Cursor(self.plan.plan.orders.get(name, ()), None))
            self.groups[name] = group
        return group

    def add_group(self, name: str) -> Group:
        """A group is there from now on.

        Raises
        ------
        DispatchError
            It is there already.
        """
        group = self.group(name)
        if group.is_present:
            raise DispatchError(f"group {name!r} is there already; add it once, until it is lost")
        group.is_present = True
        return group

    def groups_of(self, entry: Entry) -> Iterator[Group]:
        """Groups the function queues at or holds."""
        return (self.group(name) for name in entry.places)

    def nearest_first(self, entry: Entry) -> list[str]:
        """Names of the function's groups; where any will do, first one that its job used last."""
        names = list(entry.places)
        if entry.ref.is_any:
            names.sort(key=lambda name: (self.group(name).last_served or ("",))[0] != entry.ref.job)
        return names

    def find(self, function_id: str) -> Entry:
        """Look up a function by id, one that departed not long ago included.

        Raises
        ------
        DispatchError
            No such function.
        """
        entry = self.alive.get(function_id) or self._departed.get(function_id)
        if entry is None:
            raise DispatchError(
                f"function {function_id!r} is unknown: it was never ready, or ended long ago; "
                "send Ready before any other event of a function"
            )
        return entry

    def adopt(self, plan: DispatchPlan) -> None:
        """Put a plan in force; each order goes on behind what its group served last."""
        self.plan = PlanIndex(plan)
        for group in self.groups.values():
            group.cursor = Cursor(plan.orders.get(group.name, ()), group.last_served)

    def enqueue(self, ref: FunctionRef, now: int) -> Entry:
        """A function is ready: for the first time, or again after it departed."""
        if not ref.groups or len(set(ref.groups)) != len(ref.groups):
            raise DispatchError(
                f"function {ref.id!r} of job {ref.job!r} names groups {ref.groups}: "
                "name at least one group, and each once"
            )
        earlier = self.alive.get(ref.id) or self._departed.get(ref.id)
        bound = self._bound(ref, earlier)
        entry = Entry(bound, self._num_ready + 1, bound.groups, ready_at=now)
        if bound is not ref:
            entry.unbound = ref
        if earlier is not None:
            entry.stage, entry.history = earlier.stage, earlier.history
            entry.num_yields = earlier.num_yields
        entry.move(Step.READY, now)
        self._num_ready += 1
        self._departed.pop(ref.id, None)
        self.alive[ref.id] = entry
        for group in self.groups_of(entry):
            group.queue[ref.id] = entry
        self.jobs.setdefault(ref.job, Progress(now)).begin(entry)
        return entry

    def grant(self, entry: Entry, asking: Group, now: int) -> bool:
        """Give the function all its groups, or the asking one if any will do.

        Returns whether it is ahead on any of them.
        """
        entry.move(Step.ADMIT, now)
        if entry.ref.is_any:
            self._settle_on(entry, asking)
        self._num_grants += 1
        entry.grant_order = self._num_grants
        overtaken: dict[str, Entry] = {}
        for group in self.groups_of(entry):
            del group.queue[entry.ref.id]
            group.last_served = (entry.ref.job, entry.ref.op)
            if group.holder is None:
                group.holder = entry
            else:
                group.ahead = entry
            for other_id, other in group.queue.items():
                if other.order > entry.order:
                    break
                if self.is_placeable(other):
                    overtaken[other_id] = other
        for other in overtaken.values():
            other.num_overtaken += 1
            other.overtaken_ticks += entry.ref.duration_ticks
            other.longest_overtaker_ticks = max(
                other.longest_overtaker_ticks, entry.ref.duration_ticks
            )
        self._note_held(entry, now)
        job = self.jobs.get(entry.ref.job)
        if job is not None:
            job.waited_ticks += now - entry.ready_at
        return entry.held_at is None

    def depart(self, entry: Entry, step: Step, now: int) -> None:
        """The function leaves queue or groups; who was ahead of it takes over."""
        was_alive, had_lease = entry.is_alive, entry.grant_order > 0
        entry.move(step, now)
        if not was_alive:
            return
        for group in self.groups_of(entry):
            group.queue.pop(entry.ref.id, None)
            if group.ahead is entry:
                group.ahead = None
            if group.holder is entry:
                group.holder, group.ahead = group.ahead, None
                if group.holder is not None:
                    self._note_held(group.holder, now)
        self._forget(entry, now, had_lease=had_lease)
        if step is Step.YIELDED:
            entry.num_yields += 1

    def unbind(self, name: str) -> list[str]:
        """What was bound to a group by what it kept there loses that with the group.

        It queues at all its groups again, to run from its beginning. Returns those groups.
        """
        dirty: list[str] = []
        for entry in list(self.group(name).queue.values()):
            ref = entry.unbound
            if ref is None:
                continue
            whole_ticks = ref.served_ticks + ref.duration_ticks
            entry.ref = replace(ref, duration_ticks=whole_ticks, served_ticks=0)
            entry.unbound, entry.places = None, ref.groups
            for group in self.groups_of(entry):
                group.queue[ref.id] = entry
                # It keeps its age among those that queue there already.
                group.queue = dict(sorted(group.queue.items(), key=lambda item: item[1].order))
            dirty.extend(ref.groups)
        return dirty

    def makes_room(self, holder: Entry, waiting: Entry) -> bool:
        """Whether the holder's group is all the waiting one needs, and no other yields to it."""
        if waiting.ref.is_any:
            others = [group.holder for group in self.groups_of(waiting)]
            return len(holder.places) == 1 and all(o is None or o.asked_at is None for o in others)
        return len({*holder.places, *waiting.places}) == 1

    def is_placeable(self, entry: Entry) -> bool:
        """Whether all its groups are there, or one where any will do."""
        enough = any if entry.ref.is_any else all
        return enough(group.is_present for group in self.groups_of(entry))

    def is_to_wake(self, tick: int, name: str) -> bool:
        """Whether a group still waits for a moment it asked for."""
        group = self.groups.get(name)
        return group is not None and tick in (group.wake_at, group.yield_at)

    def drop_if_idle(self, name: str) -> None:
        """Forget an absent group nobody waits for."""
        group = self.groups.get(name)
        if group is not None and not group.is_present and not group.queue:
            del self.groups[name]

    def _bound(self, ref: FunctionRef, earlier: Entry | None) -> FunctionRef:
        """The function bound to the group that keeps what it did before it yielded, if one does."""
        if not ref.is_any or earlier is None or earlier.stage is not Stage.YIELDED:
            return ref
        (place,) = earlier.places
        if place not in ref.groups or not self.group(place).is_present:
            return ref
        return replace(ref, groups=earlier.places, is_any=False)

    def _settle_on(self, entry: Entry, asking: Group) -> None:
        for group in self.groups_of(entry):
            if group is not asking:
                del group.queue[entry.ref.id]
        entry.places = (asking.name,)

    def _note_held(self, entry: Entry, now: int) -> None:
        if all(group.holder is entry for group in self.groups_of(entry)):
            entry.held_at = now

    def _forget(self, entry: Entry, now: int, *, had_lease: bool) -> None:
        del self.alive[entry.ref.id]
        self._departed[entry.ref.id] = entry
        if len(self._departed) > MAX_DEPARTED:
            self._departed.popitem(last=False)
        job = self.jobs.get(entry.ref.job)
        if job is not None:
            job.alive.pop(entry.ref.id, None)
            if had_lease:
                # What yielded has not ended: the same op comes next.
                if entry.stage is not Stage.YIELDED:
                    job.note_end(entry.ref.op, now)
            else:
                job.waited_ticks += now - entry.ready_at
