"""What a plan is judged by: one integer per objective, and less is better for each of them.

The rate of a job is its iterations beside those it would make alone: 1 ÷ slowdown, weighted.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from solver.plan import Plan
from solver.problem import Job, Problem

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
    prices = [problem.group(timeline.group).price for timeline in plan.timelines]
    match objective:
        case Objective.ROUND:
            return plan.objective_ticks
        case Objective.GROUPS:
            return len(prices)
        case Objective.COST:
            return sum(prices)
        case Objective.GPU_HOURS:
            return cost_per_rate(sum(prices), _rate(problem, plan))
        case Objective.THROUGHPUT:
            return -_rate(problem, plan)


def cost_per_rate(price: int, rate: int) -> int:
    """Price ÷ rate in millionths, rounded up; `rate` is in millionths too."""
    return -(-price * MILLION * MILLION // max(rate, 1))


def column_cost(
    objective: Objective, price: int, cycle_ticks: int, jobs: Sequence[Job], theta: int = 0
) -> int:
    """What a group that serves these jobs adds to the objective, in millionths.

    For `GPU_HOURS` the price less `theta` (millionths of price per unit of rate) times the rate:
    the ratio is at most theta where the sum over groups is at most zero (Dinkelbach).
    """
    match objective:
        case Objective.ROUND:
            return MILLION * price * cycle_ticks
        case Objective.GROUPS:
            return MILLION
        case Objective.COST:
            return MILLION * price
        case Objective.GPU_HOURS:
            rate = sum(rate_millionths(job, cycle_ticks) for job in jobs)
            return MILLION * price - theta * rate // MILLION
        case Objective.THROUGHPUT:
            return -sum(rate_millionths(job, cycle_ticks) for job in jobs)


def _rate(problem: Problem, plan: Plan) -> int:
    cycles = {timeline.group: timeline.cycle_ticks for timeline in plan.timelines}
    passes = {job: count for entry in plan.timelines for job, count in entry.passes.items()}
    return sum(
        passes[job.id] * rate_millionths(job, cycles[plan.placement[job.id]])
        for job in problem.jobs
    )
