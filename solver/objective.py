"""What a plan is judged by: one integer per objective, and less is better for each of them.

The rate of a job is its iterations beside those it would make alone: 1 ÷ slowdown, weighted. A
group that a job is moved to brings its state in from far and serves nobody meanwhile: it loses a
share of the horizon, and costs as much more or serves as much less.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum

from solver.plan import Plan
from solver.problem import Group, Job, Problem

MILLION = 10**6
"""Rates and ratios are counted in millionths."""


class Objective(StrEnum):
    """What is made as small as possible."""

    ROUND = "round"
    """Priced group-ticks in which every job passes one iteration (`Plan.objective_ticks`)."""
    GROUPS = "groups"
    """Groups that serve a job."""
    COST = "cost"
    """Sum of the prices of the groups that serve a job."""
    GPU_HOURS = "gpu_hours"
    """Price of the groups that serve a job ÷ weighted rate of all jobs, in millionths: what a
    unit of work costs, so that fewer groups at the price of slower jobs gain nothing."""
    THROUGHPUT = "throughput"
    """Weighted rate of all jobs on the groups there are, in millionths, negative since less is
    better."""


def rate_millionths(job: Job, cycle_ticks: int) -> int:
    """Weighted rate of a job in a cycle of its group, rounded down."""
    return MILLION * job.weight * job.alone_ticks // cycle_ticks


def value_of(problem: Problem, plan: Plan, objective: Objective) -> int:
    """The value of a plan; ratios are rounded up, so that no value looks better than it is."""
    lost = _lost(problem, plan)
    priced = [(problem.group(entry.group).price, entry) for entry in plan.timelines]
    match objective:
        case Objective.ROUND:
            ticks = (
                price * entry.cycle_ticks * (MILLION + lost[entry.group]) for price, entry in priced
            )
            return sum(ticks) // MILLION
        case Objective.GROUPS:
            return len(priced) + sum(lost.values()) // MILLION
        case Objective.COST:
            return sum(price * (MILLION + lost[entry.group]) for price, entry in priced) // MILLION
        case Objective.GPU_HOURS:
            millionths = sum(price * (MILLION + lost[entry.group]) for price, entry in priced)
            return cost_per_rate(millionths, _rate(problem, plan))
        case Objective.THROUGHPUT:
            return -_rate(problem, plan, lost)


def cost_per_rate(price: int, rate: int) -> int:
    """Price ÷ rate in millionths, rounded up; both are given in millionths."""
    return -(-price * MILLION // max(rate, 1))


def column_cost(
    objective: Objective,
    price: int,
    cycle_ticks: int,
    jobs: Sequence[Job],
    theta: int = 0,
    lost: int = 0,
) -> int:
    """What a group that serves these jobs adds to the objective, in millionths.

    `lost` is the share of the horizon that it loses to moves, in millionths.

    For `GPU_HOURS` the price less `theta` (millionths of price per unit of rate) times the rate:
    the ratio is at most theta where the sum over groups is at most zero (Dinkelbach).
    """
    match objective:
        case Objective.ROUND:
            return (MILLION + lost) * price * cycle_ticks
        case Objective.GROUPS:
            return MILLION + lost
        case Objective.COST:
            return (MILLION + lost) * price
        case Objective.GPU_HOURS:
            rate = sum(rate_millionths(job, cycle_ticks) for job in jobs)
            return (MILLION + lost) * price - theta * rate // MILLION
        case Objective.THROUGHPUT:
            rate = sum(rate_millionths(job, cycle_ticks) for job in jobs)
            return -rate * max(MILLION - lost, 0) // MILLION


def lost_millionths(problem: Problem, group: str, jobs: Iterable[Job]) -> int:
    """Share of the horizon that a group loses to those of its jobs that come from another one."""
    current = problem.current or {}
    ticks = sum(job.move_ticks for job in jobs if current.get(job.id, group) != group)
    return _share(problem, ticks)


def least_lost_millionths(problem: Problem, groups: Iterable[Group], jobs: Iterable[Job]) -> int:
    """The same on whichever of some groups loses least."""
    current = problem.current or {}
    placed = [(current[job.id], job.move_ticks) for job in jobs if job.id in current]
    total = sum(ticks for _, ticks in placed)
    if not total:
        return 0
    here: dict[str, int] = {}
    for group, ticks in placed:
        here[group] = here.get(group, 0) + ticks
    return _share(problem, total - max(here.get(group.id, 0) for group in groups))


def _share(problem: Problem, ticks: int) -> int:
    return MILLION * ticks // problem.horizon_ticks


def _lost(problem: Problem, plan: Plan) -> dict[str, int]:
    """Group → share of the horizon it loses to moves, in millionths."""
    here: dict[str, list[Job]] = {timeline.group: [] for timeline in plan.timelines}
    for job in problem.jobs:
        here[plan.placement[job.id]].append(job)
    return {group: lost_millionths(problem, group, jobs) for group, jobs in here.items()}


def _rate(problem: Problem, plan: Plan, lost: Mapping[str, int] | None = None) -> int:
    cycles = {timeline.group: timeline.cycle_ticks for timeline in plan.timelines}
    passes = {job: count for entry in plan.timelines for job, count in entry.passes.items()}
    rates: dict[str, int] = dict.fromkeys(cycles, 0)
    for job in problem.jobs:
        group = plan.placement[job.id]
        rates[group] += passes[job.id] * rate_millionths(job, cycles[group])
    if lost is None:
        return sum(rates.values())
    return sum(rate * max(MILLION - lost[group], 0) // MILLION for group, rate in rates.items())
