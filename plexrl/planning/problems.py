"""Live jobs as the solver's problem, and its plan as the arbiter takes it.

Every job stays where it is; what is planned is the order of functions on each group.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import solver
from plexrl.core.placement import Placement
from plexrl.planning.arranging import Spot, num_ahead
from plexrl.planning.facts import GroupFacts, PlannedJob
from plexrl.planning.profiles import OpEstimate
from solver.dispatch.events import TICKS_PER_S, DispatchPlan, Slot


@dataclass(frozen=True, slots=True)
class EstimatedJob:
    """A job with what is expected of its ops at the moment of the request."""

    job: PlannedJob
    placement: Placement
    """Groups it is on."""
    ops: tuple[OpEstimate, ...]

    @property
    def name(self) -> str:
        """Name of the job."""
        return self.job.name

    @property
    def spot(self) -> Spot:
        """The same, as it is simulated."""
        return self.job, self.placement, self.ops


def build_problem(jobs: Sequence[EstimatedJob], groups: Sequence[GroupFacts]) -> solver.Problem:
    """Turn estimates in seconds into a problem in ticks; every job stays on its groups.

    Raises
    ------
    solver.ProblemError
        An estimate is out of range.
    """
    return solver.Problem(
        groups=tuple(
            solver.Group(
                id=group.name,
                memory_bytes=max(group.memory_bytes, 1),
                max_jobs=group.max_jobs,
            )
            for group in groups
        ),
        jobs=tuple(job_of(entry) for entry in jobs),
        current={entry.name: entry.placement.home for entry in jobs},
    )


def linked_groups(jobs: Iterable[EstimatedJob], groups: Iterable[str]) -> set[str]:
    """These groups, and all that jobs link to them by being on several."""
    found = set(groups)
    spread = [set(entry.placement.groups) for entry in jobs if entry.placement.guests]
    while wider := [places for places in spread if places & found and not places <= found]:
        found.update(*wider)
    return found


def linked_circles(
    jobs: Sequence[EstimatedJob],
) -> Iterator[tuple[frozenset[str], tuple[EstimatedJob, ...]]]:
    """Sets of groups that jobs link by being on several, each with all jobs there."""
    seen: set[str] = set()
    for entry in jobs:
        if entry.placement.guests and entry.placement.home not in seen:
            groups = linked_groups(jobs, entry.placement.groups)
            seen |= groups
            yield (
                frozenset(groups),
                tuple(e for e in jobs if not groups.isdisjoint(e.placement.groups)),
            )


def dispatch_plan(problem: solver.Problem, plan: solver.Plan) -> DispatchPlan:
    """Dispatch orders of a plan; an op that follows another job's is expected with its switch."""
    orders: dict[str, tuple[Slot, ...]] = {}
    for timeline in plan.timelines:
        before = timeline.order[-1][0]
        slots = []
        for job, name in timeline.order:
            op = next(op for op in problem.job(job).ops if op.name == name)
            switch_ticks = op.switch_ticks if job != before else 0
            slots.append(Slot(job, name, op.duration_ticks + switch_ticks, op.wait_ticks))
            before = job
        orders[timeline.group] = tuple(slots)
    return DispatchPlan(orders, {job.id: job.alone_ticks for job in problem.jobs if job.staleness})


def job_of(entry: EstimatedJob) -> solver.Job:
    """A job in ticks, on its groups."""
    ahead = _ahead_elsewhere(entry)
    return solver.Job(
        id=entry.name,
        ops=tuple(_op(estimate, entry.placement) for estimate in entry.ops),
        memory_bytes=entry.job.memory_bytes,
        slowdown_limit_permille=round(entry.job.slowdown_limit * 1000),
        weight=_weight(entry.job.weight),
        pinned_group=entry.placement.home,
        ahead_ops=ahead,
        staleness=entry.job.staleness if ahead else 0,
    )


def _ahead_elsewhere(entry: EstimatedJob) -> int:
    """Ops that run ahead on groups which none of the following ones use."""
    places = [set(entry.placement.lease_groups(op.op, is_setup=False)) for op in entry.ops]
    most = num_ahead(entry.job, entry.ops)
    apart = (
        n for n in range(most, 0, -1) if not set().union(*places[:n]) & set().union(*places[n:])
    )
    return next(apart, 0)


def _op(estimate: OpEstimate, placement: Placement) -> solver.Op:
    group, *also = placement.lease_groups(estimate.op, is_setup=False)
    return solver.Op(
        name=estimate.op,
        duration_ticks=max(round(estimate.busy_s * TICKS_PER_S), 1),
        wait_ticks=max(round(estimate.wait_s * TICKS_PER_S), 0),
        switch_ticks=max(round(estimate.swap_s * TICKS_PER_S), 0),
        group=None if group == placement.home else group,
        also=tuple(also),
    )


def _weight(weight: float) -> int:
    return max(1, min(math.ceil(weight * 1000), 10**6))
