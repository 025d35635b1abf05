"""What a value of an objective means, in the units of the problem file."""

from __future__ import annotations

import solver
from plexrl.cli.problemfile import PRICE_UNITS
from solver.dispatch.events import TICKS_PER_S
from solver.objective import MILLION

UNITS = {
    solver.Objective.ROUND: "price × seconds of a round",
    solver.Objective.GROUPS: "groups",
    solver.Objective.COST: "price of all groups in use",
    solver.Objective.GPU_HOURS: "price per job at full speed",
    solver.Objective.THROUGHPUT: "jobs at full speed",
}
"""Objective → what its values count."""


def in_units(objective: solver.Objective, value: int) -> float:
    """A value, or a bound on it, as people count it."""
    match objective:
        case solver.Objective.ROUND:
            return value / PRICE_UNITS / TICKS_PER_S
        case solver.Objective.GROUPS:
            return value
        case solver.Objective.COST:
            return value / PRICE_UNITS
        case solver.Objective.GPU_HOURS:
            return value / PRICE_UNITS / MILLION
        case solver.Objective.THROUGHPUT:
            return -value / MILLION


def value_text(objective: solver.Objective, value: int) -> str:
    """A value with its unit."""
    return f"{in_units(objective, value):.5g} {UNITS[objective]}"
