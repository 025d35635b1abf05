"""Checks what a plan of several pools says of itself against its seats, run once more."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from plexrl.cli.fleetfile import Fleet
from plexrl.cli.planner_fleet_scores import scored
from plexrl.cli.problemfile import PRICE_UNITS
from solver.dispatch.shortest import ShortestFirst
from solver.errors import ProblemError
from solver.scoring import tolerances
from solver.seating import cells_of, groups_of
from solver.seatplan import SeatPlan
from solver.workloads import Role

TOLERANCE = 0.1
"""Share by which slowdowns may differ: seats that are named otherwise take other turns."""
RULE_TOLERANCE = 1e-6
"""What tolerances of the rule may differ by, which are no measurements."""
SAVING_TOLERANCE = 0.05
"""As for slowdowns, of what is saved, which they make up."""


def broken_promises(fleet: Fleet, made: SeatPlan, promised: Mapping[str, object]) -> Iterator[str]:
    """One sentence for each number of a plan that its seats do not bear out.

    Parameters
    ----------
    fleet
        Jobs and groups.
    made
        The plan, with seats that pass `solver.seating.verify_seats`.
    promised
        The plan as ``plexrl plan --output`` writes it; what it leaves out is not checked.
    """
    seats = made.seats
    yield from _other_rule(fleet, made.rule)
    price = sum(
        len(groups_of(seats, role))
        * (fleet.market.train_price if role is Role.TRAIN else fleet.market.rollout_price)
        for role in fleet.pools
    )
    yield from _other("price", promised.get("price"), price / PRICE_UNITS, 1e-6 * price)
    cells = cells_of(fleet.market, fleet.jobs, seats)
    try:
        score = scored(cells, len(fleet.jobs))
    except ProblemError as error:
        yield f"the plan is not simulated: {error}"
        return
    given = promised.get("slowdowns")
    told = given if isinstance(given, Mapping) else {}
    for job, slowdown in score.slowdowns.items():
        name = f"slowdown of job {job!r}"
        yield from _other(name, told.get(job), slowdown, TOLERANCE * slowdown)
    saving = score.saving(fleet.market.dedicated_price)
    yield from _other("saving", promised.get("saving"), saving, SAVING_TOLERANCE)


def _other_rule(fleet: Fleet, rule: ShortestFirst | None) -> Iterator[str]:
    """Slowdowns are those of the rule that limits make: jobs that it leaves out have no limit."""
    if rule is None:
        return
    for job, lag in tolerances(fleet.jobs).items():
        given = rule.tolerances.get(job)
        if given is None or abs(given - lag) > RULE_TOLERANCE:
            yield (
                f"the rule tolerates a lag of {given} of job {job!r}; its slowdown limit makes it "
                f"{lag:.4g}"
            )


def _other(name: str, given: object, found: float, tolerance: float) -> Iterator[str]:
    if given is None:
        return
    is_number = isinstance(given, int | float) and math.isfinite(given)
    if not is_number or abs(float(given) - found) > tolerance:  # type: ignore[arg-type]
        yield f"{name} is given as {given}; the seats make it {found:.4g}"
