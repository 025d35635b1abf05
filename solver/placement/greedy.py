"""Best fit: each job goes where it adds least, longest jobs first; milliseconds, no solver.

The cost of a group is price × cycle length, so a job that fits into the waits of others is
free and one that needs a group of its own costs its whole iteration.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from solver.bounds import least_switch_ticks, may_use
from solver.objective import Objective, value_of
from solver.placement.bins import Bins
from solver.plan import Plan, Timeline
from solver.problem import Group, Job, Problem
from solver.timeline import greedy_timeline, keeps_limits, plan_of

MAX_RETRIED_JOBS = 200
"""Up to this many jobs several orders are tried and the cheapest plan serves."""

MAX_TRIED_GROUPS = 4
"""Groups with jobs on which a job may be tried with a timeline: each takes a third of a
millisecond."""


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
            value_of(problem, plan, Objective.ROUND),
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

    Best fit goes by the floors alone first. Groups whose timeline turns out not to keep the limits
    then give back their last jobs, and for those each group is checked with a timeline.
    """
    bins = Bins(problem)
    for job in order:
        index = next(bins.candidates(job), None)
        if index is None:
            return None
        bins.put(job, index)
    if not _mend(bins):
        return None
    return tuple(
        greedy_timeline(group.id, jobs)
        for group, jobs in zip(problem.groups, bins.jobs, strict=True)
        if jobs
    )


def _mend(bins: Bins) -> bool:
    """Move jobs off groups that do not keep the limits; whether all found another place."""
    homeless = []
    for index, jobs in enumerate(bins.jobs):
        while len(jobs) > 1 and not keeps_limits(jobs):
            homeless.append(bins.drop_last(index))
    return all(insert(bins, job) is not None for job in homeless)


def insert(bins: Bins, job: Job) -> int | None:
    """Put a job where it adds least and every limit is kept; the group's index.

    Groups with jobs that are tried in vain are few, then the job gets an idle one if there is one.
    """
    tried = 0
    for index in bins.candidates(job):
        here = bins.jobs[index]
        if here and tried >= MAX_TRIED_GROUPS:
            continue
        tried += bool(here)
        if keeps_limits([*here, job]):
            bins.put(job, index)
            return index
    return None
