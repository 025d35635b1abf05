"""Best fit: each job goes where it adds least, longest jobs first; milliseconds, no solver.

The cost of a group is price × cycle length, so a job that fits into the waits of others is
free and one that needs a group of its own costs its whole iteration.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from solver.bounds import least_switch_ticks, may_use
from solver.plan import Plan, Timeline
from solver.problem import Group, Job, Problem
from solver.timeline import greedy_timeline, keeps_limits, plan_of

MAX_RETRIED_JOBS = 200
"""Up to this many jobs several orders are tried and the cheapest plan serves."""

MAX_CHECKED_JOBS = 2_000
"""Up to this many jobs each addition to a group may be checked with a timeline."""


@dataclass(frozen=True, slots=True)
class Bin:
    """A group and the jobs placed on it so far, with the sums that the next one needs."""

    group: Group
    jobs: tuple[Job, ...]
    free_bytes: int
    busy_ticks: int = 0
    switch_ticks: int = 0
    """Cheapest switches to each job here; they count from the second job on."""
    chain_ticks: int = 0
    limit_ticks: int | None = None
    """Longest cycle all jobs here allow."""
    forbidden: frozenset[str] = frozenset()
    """Jobs that some job here forbids."""
    floor_ticks: int = 0
    """Shortest conceivable cycle of the jobs here (`bounds.cycle_floor_ticks`)."""

    @classmethod
    def empty(cls, group: Group) -> Bin:
        """A group without jobs."""
        return cls(group, (), group.memory_bytes)

    def floor_with(self, job: Job) -> int | None:
        """Shortest conceivable cycle with one more job, or None if it breaks a requirement."""
        if job.memory_bytes > self.free_bytes or not may_use(job, self.group):
            return None
        if self.group.max_jobs is not None and len(self.jobs) >= self.group.max_jobs:
            return None
        load = self.busy_ticks + job.busy_ticks
        if self.jobs:
            load += self.switch_ticks + least_switch_ticks(job)
        floor = max(load, self.chain_ticks, job.alone_ticks)
        if floor > job.limit_ticks or (self.limit_ticks is not None and floor > self.limit_ticks):
            return None
        if job.id in self.forbidden or any(other.id in job.forbids for other in self._named(job)):
            return None
        return floor

    def _named(self, job: Job) -> tuple[Job, ...]:
        """The jobs here that a job might forbid: none, nearly always."""
        return self.jobs if job.forbids else ()

    def with_job(self, job: Job, floor_ticks: int) -> Bin:
        """The group with one more job."""
        limit = job.limit_ticks
        return Bin(
            group=self.group,
            jobs=(*self.jobs, job),
            free_bytes=self.free_bytes - job.memory_bytes,
            busy_ticks=self.busy_ticks + job.busy_ticks,
            switch_ticks=self.switch_ticks + least_switch_ticks(job),
            chain_ticks=max(self.chain_ticks, job.alone_ticks),
            limit_ticks=limit if self.limit_ticks is None else min(limit, self.limit_ticks),
            forbidden=self.forbidden.union(job.forbids) if job.forbids else self.forbidden,
            floor_ticks=floor_ticks,
        )


Placed = dict[str, tuple[Job, ...]]
"""Group → the jobs on it; idle groups are left out."""


def greedy_plan(problem: Problem) -> Plan | None:
    """The cheapest plan that best fit finds, or None if it finds none (which proves nothing)."""
    plans = []
    for order in _orders(problem):
        timelines = _place(problem, order)
        if timelines is not None:
            plans.append(plan_of(problem, timelines))
    current = problem.current or {}
    return min(
        plans,
        key=lambda plan: (
            plan.objective_ticks,
            sum(plan.placement[job] != group for job, group in current.items()),
        ),
        default=None,
    )


def timelines_of(placed: Placed) -> tuple[Timeline, ...]:
    """Greedy timelines of a placement, whether or not they keep the slowdown limits."""
    return tuple(greedy_timeline(group, jobs) for group, jobs in placed.items())


def _orders(problem: Problem) -> Iterable[Sequence[Job]]:
    keys: list[Callable[[Job], tuple[int, ...]]] = [
        lambda job: (job.alone_ticks, job.busy_ticks),
        lambda job: (job.busy_ticks * 1000 // job.limit_ticks, job.alone_ticks),
        lambda job: (job.memory_bytes, job.alone_ticks),
    ]
    if len(problem.jobs) > MAX_RETRIED_JOBS:
        keys = keys[:1]
    for key in keys:
        by_size = sorted(problem.jobs, key=lambda job: _less(key(job)))
        yield sorted(by_size, key=lambda job: job.pinned_group is None)
        if current := problem.current:
            yield sorted(by_size, key=lambda job: (job.pinned_group is None, job.id not in current))


def _less(values: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(-value for value in values)


def _place(problem: Problem, order: Sequence[Job]) -> tuple[Timeline, ...] | None:
    """Timelines of the jobs placed in this order.

    Best fit goes by the floors alone first, and checks each job's timeline only if some group's
    turns out not to keep the limits.
    """
    for is_careful in (False, True):
        if is_careful and len(order) > MAX_CHECKED_JOBS:
            break
        bins = _fill(problem, order, is_careful=is_careful)
        if bins is None:
            return None
        used = [here for here in bins if here.jobs]
        if is_careful or all(keeps_limits(here.jobs) for here in used):
            return tuple(greedy_timeline(here.group.id, here.jobs) for here in used)
    return None


def _fill(problem: Problem, order: Sequence[Job], *, is_careful: bool) -> list[Bin] | None:
    bins = [Bin.empty(group) for group in problem.groups]
    current = problem.current or {}
    for job in order:
        for cost, index in _candidates(bins, job, current.get(job.id)):
            here = bins[index]
            if not is_careful or keeps_limits([*here.jobs, job]):
                bins[index] = here.with_job(job, cost // here.group.price)
                break
        else:
            return None
    return bins


def _candidates(bins: Sequence[Bin], job: Job, current: str | None) -> list[tuple[int, int]]:
    """``(price × cycle floor, index)`` of the groups that may take a job, least added cost first.

    Among equals the group the job is on now comes first, then the one with least memory left.
    Of idle groups that are alike only the first is a candidate.
    """
    found: list[tuple[tuple[int, bool, int], int, int]] = []
    idle: set[tuple[int, str, int | None, int]] = set()
    for index, here in enumerate(bins):
        group = here.group
        kind = (group.memory_bytes, group.pool, group.max_jobs, group.price)
        if not here.jobs and group.id not in {current, job.pinned_group}:
            if kind in idle:
                continue
            idle.add(kind)
        floor = here.floor_with(job)
        if floor is not None:
            added = group.price * (floor - here.floor_ticks)
            rank = (added, group.id != current, here.free_bytes)
            found.append((rank, group.price * floor, index))
    return [(cost, index) for _, cost, index in sorted(found)]
