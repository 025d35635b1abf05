"""Finds the plan to simulate, given or made now, and runs it under several rules."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from rich.console import Console

import solver
from plexrl.cli.fleetfile import Fleet
from plexrl.cli.planner_answering import Wish, fleet_plan, solve
from plexrl.cli.planner_fleet_force import in_force, read_seats
from plexrl.cli.planner_fleet_rehearsal import rehearse_fleet
from plexrl.cli.planner_rehearsal import Noise, Rehearsal, rehearse
from plexrl.cli.problemfile import read_plan
from plexrl.errors import InputError
from solver.seating import Seat, verify_seats

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Trial:
    """What is simulated."""

    plan_file: Path | None
    """The plan; None: made now."""
    noise: Noise
    cycles: int
    """Iterations of the slowest job."""
    seeds: Sequence[int]


def try_out(
    problem: solver.Problem | Fleet, trial: Trial, wish: Wish, console: Console
) -> tuple[Rehearsal, ...] | solver.Result:
    """Slowdowns under each rule; the result of planning where that gave no plan.

    Raises
    ------
    InputError
        The plan is of another problem, or the cycles are too few.
    PlanError
        There are fewer groups than the jobs need.
    """
    if isinstance(problem, Fleet):
        return rehearse_fleet(
            problem,
            _seats(problem, trial.plan_file, wish, console),
            is_heavy=trial.noise.is_heavy,
            cycles=trial.cycles,
            seeds=trial.seeds,
            progress=console.print,
        )
    plan = None if trial.plan_file is None else _checked(problem, trial.plan_file)
    if plan is None:
        result = solve(problem, None, wish, console)
        if result.plan is None:
            return result
        plan = result.plan
    return rehearse(
        problem,
        plan,
        trial.noise,
        cycles=trial.cycles,
        seeds=trial.seeds,
        progress=console.print,
    )


def _checked(problem: solver.Problem, path: Path) -> solver.Plan:
    given = read_plan(path)
    return _valid(path, given, solver.verify(problem, given))


def _seats(fleet: Fleet, path: Path | None, wish: Wish, console: Console) -> Sequence[Seat]:
    if path is None:
        before = in_force(fleet, fleet.current) if fleet.current else None
        return fleet_plan(fleet, wish, console, before).seats
    given = read_seats(path)
    return _valid(path, given, verify_seats(fleet.market, fleet.jobs, given, fleet.names))


def _valid(path: Path, given: _T, found: solver.Verification) -> _T:
    if not found.is_valid:
        raise InputError(f"{path} is no plan of this problem: {found.violations[0]}")
    return given
