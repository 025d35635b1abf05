"""What plans of several pools would be under other limits, with one more job, or with a group less.

Each question is a search of its own, with half the time that the plan was given. It begins from a
plan that is there already, and never tells of a worse one; where it found none it says so.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from statistics import fmean

import solver
from plexrl.cli.fleetfile import Fleet
from plexrl.cli.planner_fleet import FleetPlan, plan_fleet
from plexrl.cli.planner_fleet_changes import fleet_changes
from plexrl.cli.planner_fleet_force import InForce, in_force
from plexrl.cli.planner_frontier import LIMITS_PERMILLE, FrontierPoint
from plexrl.cli.problemfile import PRICE_UNITS
from plexrl.spelling import counted
from solver.explain_pools import explain_pools
from solver.seating import groups_of
from solver.workloads import Workload

MAX_NEWCOMERS = 3
"""Jobs of which one more is tried."""
SHARE = 0.5
"""Time of one question, as a share of that for the plan."""


@dataclass(frozen=True, slots=True)
class FleetWhatIf:
    """One question, and the plan for it."""

    name: str
    fleet: Fleet
    plan: FleetPlan | None
    outcome: str
    """What comes of it, in a sentence."""

    def to_json(self) -> dict[str, object]:
        """The answer as JSON types."""
        plan = None if self.plan is None else self.plan.to_json()
        return {"name": self.name, "outcome": self.outcome, "plan": plan}


def fleet_frontier(
    fleet: Fleet, objective: solver.Objective, budget_s: float, seed: int
) -> tuple[FrontierPoint, ...]:
    """Plan under each of some limits for all jobs, the tightest first; moves cost nothing."""
    found = []
    before: InForce | None = None
    for permille in LIMITS_PERMILLE:
        limit = permille / 1000
        jobs = tuple(replace(job, slowdown_limit=limit, move_share=0.0) for job in fleet.jobs)
        other = replace(fleet, jobs=jobs)
        try:
            # What holds under a tight limit holds under a wide one.
            plan = _planned(other, objective, budget_s, seed, before)
        except solver.PlanError as error:
            found.append(FrontierPoint(limit, None, None, None, str(error)))
        else:
            price = plan.score.price / PRICE_UNITS
            found.append(FrontierPoint(limit, price, plan.saving, plan.num_groups, ""))
            before = in_force(other, plan.seats, plan.cells)
    return tuple(found)


def fleet_what_if(
    fleet: Fleet, plan: FleetPlan, objective: solver.Objective, budget_s: float, seed: int
) -> tuple[FleetWhatIf, ...]:
    """Plan with one more of some jobs that are not like each other, and with a group less."""
    found = []
    for name, other in (*_one_more(fleet), *_one_fewer(fleet, plan)):
        before = in_force(other, plan.seats, plan.cells)
        try:
            made = _planned(other, objective, budget_s, seed, before)
        except solver.PlanError as error:
            found.append(FleetWhatIf(name, other, None, f"{error}."))
        else:
            found.append(FleetWhatIf(name, other, made, _outcome(other, before, plan, made)))
    return tuple(found)


def _planned(
    fleet: Fleet, objective: solver.Objective, budget_s: float, seed: int, before: InForce | None
) -> FleetPlan:
    lacking = explain_pools(fleet.market, fleet.jobs, fleet.names)
    if lacking:
        raise solver.PlanError(f"No plan: {lacking}")
    time_s = SHARE * budget_s
    try:
        return plan_fleet(fleet, objective, time_s, seed, before=before)
    except solver.PlanError as error:
        raise solver.PlanError(
            f"No answer: in {time_s:.3g} s no plan was found, which does not mean that there is "
            f"none ({error}); allow more with --budget"
        ) from error


def _outcome(fleet: Fleet, before: InForce, plan: FleetPlan, made: FleetPlan) -> str:
    known = {seat.job for seat in plan.seats}
    rows = fleet_changes(fleet, before, made).rows
    moved = sum(row.is_moved for row in rows if row.job in known)
    return (
        f"{counted(made.num_groups, 'group')} instead of {plan.num_groups}; price "
        f"{made.score.price / PRICE_UNITS:.5g} instead of {plan.score.price / PRICE_UNITS:.5g}; "
        f"{made.saving:.1%} saved; mean slowdown {fmean(made.slowdowns.values()):.3f}; "
        f"{counted(moved, 'job')} would move. Searched for half as long: with more time there may "
        "be a better plan."
    )


def _one_more(fleet: Fleet) -> Iterator[tuple[str, Fleet]]:
    seen: dict[object, Workload] = {}
    for job in fleet.jobs:
        seen.setdefault(replace(job, name=""), job)
    for job in list(seen.values())[:MAX_NEWCOMERS]:
        newcomer = replace(job, name=f"{job.name} (one more)")
        wider = replace(fleet, jobs=(*fleet.jobs, newcomer))
        yield f"one more job like {job.name}", wider


def _one_fewer(fleet: Fleet, plan: FleetPlan) -> Iterator[tuple[str, Fleet]]:
    """The groups in use but one: of each pool the one whose jobs are fewest."""
    for role, pool in fleet.pools.items():
        used = groups_of(plan.seats, role)
        gone = min(used, key=lambda group: len(used[group]))
        left = tuple(name for name in fleet.names[role] if name in used and name != gone)
        name = f"one group of pool {pool} fewer ({gone} gone, idle ones unused)"
        yield name, replace(fleet, names={**fleet.names, role: left})
