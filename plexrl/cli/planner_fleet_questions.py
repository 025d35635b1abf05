"""What plans of several pools would be under other limits, or with one more job.

Each question is a search of its own, with half the time that the plan was given, or two seconds.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import solver
from plexrl.cli.fleetfile import Fleet
from plexrl.cli.planner_fleet import FleetPlan, plan_fleet
from plexrl.cli.planner_frontier import LIMITS_PERMILLE, FrontierPoint
from plexrl.cli.planner_whatif import WhatIf
from plexrl.cli.problemfile import PRICE_UNITS
from plexrl.spelling import counted
from solver.arrangements import Arrangement, make_cell
from solver.workloads import Workload

MAX_NEWCOMERS = 3
"""Jobs of which one more is tried."""
SHARE = 0.5
"""Time of one question, as a share of that for the plan."""
LEAST_S = 2.0
"""Least time of one question, unless the plan was given none: in less nothing is found."""


def fleet_frontier(
    fleet: Fleet, objective: solver.Objective, budget_s: float, seed: int
) -> tuple[FrontierPoint, ...]:
    """Plan under each of some limits for all jobs."""
    found = []
    for permille in LIMITS_PERMILLE:
        limit = permille / 1000
        jobs = tuple(replace(job, slowdown_limit=limit) for job in fleet.jobs)
        try:
            plan = plan_fleet(replace(fleet, jobs=jobs), objective, _time_s(budget_s), seed)
        except solver.PlanError as error:
            found.append(FrontierPoint(limit, None, None, None, str(error)))
        else:
            price = plan.score.price / PRICE_UNITS
            found.append(FrontierPoint(limit, price, plan.saving, plan.num_groups, ""))
    return tuple(found)


def fleet_what_if(
    fleet: Fleet, plan: FleetPlan, objective: solver.Objective, budget_s: float, seed: int
) -> tuple[WhatIf, ...]:
    """Plan with one more of some jobs that are not like each other."""
    found = []
    for name, newcomer in _newcomers(fleet):
        beside = _beside(fleet, plan, newcomer)
        try:
            wider = replace(fleet, jobs=(*fleet.jobs, newcomer))
            other = plan_fleet(wider, objective, _time_s(budget_s), seed)
        except solver.PlanError as error:
            outcome = f"No plan: {error}."
        else:
            price = other.score.price / PRICE_UNITS
            found_one = _Answer(other.saving, other.num_groups, price)
            has_room = beside.num_groups <= sum(map(len, fleet.names.values()))
            best = max(beside, found_one) if has_room else found_one
            outcome = (
                f"{counted(best.num_groups, 'group')} instead of {plan.num_groups}; price "
                f"{best.price:.5g} instead of {plan.score.price / PRICE_UNITS:.5g}; "
                f"{best.saving:.1%} saved. Searched for half as long: with more time there may be "
                "a better plan."
            )
        found.append(WhatIf(name, None, None, outcome))
    return tuple(found)


class _Answer(NamedTuple):
    """What comes of one more job; the larger saving is the better answer."""

    saving: float
    num_groups: int
    price: float


def _beside(fleet: Fleet, plan: FleetPlan, newcomer: Workload) -> _Answer:
    """Everybody stays, and the newcomer has groups of its own."""
    market, alone = fleet.market, make_cell(fleet.market, [newcomer])
    price = plan.score.price + alone.price
    work = plan.score.work + market.weight(newcomer)
    groups = newcomer.train_width
    if market.arrangement is not Arrangement.COLOCATED:
        groups += newcomer.rollout_width
    saving = 1 - price / (market.dedicated_price * work)
    return _Answer(saving, plan.num_groups + groups, price / PRICE_UNITS)


def _time_s(budget_s: float) -> float:
    return max(SHARE * budget_s, LEAST_S) if budget_s else 0.0


def _newcomers(fleet: Fleet) -> Iterator[tuple[str, Workload]]:
    seen: dict[object, Workload] = {}
    for job in fleet.jobs:
        seen.setdefault(replace(job, name=""), job)
    for job in list(seen.values())[:MAX_NEWCOMERS]:
        yield f"one more job like {job.name}", replace(job, name=f"{job.name} (one more)")
