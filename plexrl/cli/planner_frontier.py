"""What other slowdown limits would cost or save."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace

import solver
from plexrl.cli.planner_units import in_units
from solver.objective import value_of

LIMITS_PERMILLE = (1050, 1100, 1200, 1300, 1500, 2000)
"""Limits tried: from hardly any slowdown to twice as long."""


@dataclass(frozen=True, slots=True)
class FrontierPoint:
    """The best plan at hand under one limit for all jobs."""

    slowdown_limit: float
    value: float | None
    """Of the objective, in its units; None without a plan."""
    saving: float | None
    """Share of priced group-time per unit of work saved over a group of its own for each job."""
    num_groups: int | None
    reason: str
    """Why there is no plan; empty where there is one."""

    def to_json(self) -> dict[str, object]:
        """The point as JSON types."""
        return asdict(self)


def frontier(
    problem: solver.Problem,
    plan: solver.Plan | None,
    seed: int,
    objective: solver.Objective = solver.Objective.ROUND,
    most_passes: int = 1,
) -> tuple[FrontierPoint, ...]:
    """Plan at once (without the solver's process) under each limit.

    Parameters
    ----------
    problem
        What is planned.
    plan
        A plan that is there already: under limits that it keeps no point is worse.
    seed, objective, most_passes
        As it was planned with.
    """
    points = []
    for permille in LIMITS_PERMILLE:
        jobs = tuple(replace(job, slowdown_limit_permille=permille) for job in problem.jobs)
        other = replace(problem, jobs=jobs)
        kept = None if plan is None or not solver.verify(other, plan).is_valid else plan
        points.append(_point(other, permille, kept, seed, objective, most_passes))
    return tuple(points)


def dedicated_ticks(problem: solver.Problem, plan: solver.Plan) -> int:
    """Priced group-ticks of what the jobs do in a cycle, each on the cheapest group it fits.

    One over several groups would have as many for itself.
    """
    passes = {job: count for entry in plan.timelines for job, count in entry.passes.items()}
    # Groups are mostly alike, and there may be thousands of them and of jobs.
    kinds = {(group.pool, group.memory_bytes, group.price) for group in problem.groups}
    total = 0
    for job in problem.jobs:
        if job.is_spread:
            price = own_price(problem, job, plan.placement[job.id])
            total += price * passes[job.id] * job.alone_ticks
            continue
        prices = [
            price
            for pool, memory_bytes, price in kinds
            if job.pool in {None, pool} and job.memory_bytes <= memory_bytes
        ]
        if job.pinned_group is not None:
            prices = [problem.group(job.pinned_group).price]
        total += min(prices) * passes[job.id] * job.alone_ticks
    return total


def own_price(problem: solver.Problem, job: solver.Job, home: str) -> int:
    """Price of the groups that a job is on, at home on this one."""
    places = {group for op in job.ops for group in (op.group or home, *op.also)}
    return sum(problem.group(group).price for group in places)


def saving_of(problem: solver.Problem, plan: solver.Plan) -> float:
    """Share of priced group-time per iteration that a plan saves over dedicated groups."""
    return 1 - plan.objective_ticks / dedicated_ticks(problem, plan)


def _point(
    problem: solver.Problem,
    permille: int,
    kept: solver.Plan | None,
    seed: int,
    objective: solver.Objective,
    most_passes: int,
) -> FrontierPoint:
    limit = permille / 1000
    result = solver.plan(
        problem, objective=objective, budget_s=0.0, seed=seed, most_passes=most_passes
    )
    plan, value = result.plan, result.value
    if kept is not None and (value is None or value_of(problem, kept, objective) < value):
        plan, value = kept, value_of(problem, kept, objective)
    if plan is None or value is None:
        return FrontierPoint(limit, None, None, None, result.reason)
    saved = saving_of(problem, plan)
    return FrontierPoint(limit, in_units(objective, value), saved, len(plan.timelines), "")
