"""A plan of several pools that is in force: read, and tried on the jobs and groups of now."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from plexrl.cli.fleetfile import Fleet
from plexrl.cli.planner_fleet_scores import scored
from plexrl.cli.problemfile import load
from plexrl.errors import InputError
from solver.arrangements import Cell
from solver.errors import PlanError, ProblemError
from solver.scoring import FleetScore
from solver.seating import Seat, cells_of, verify_seats
from solver.seatplan import SeatPlan


@dataclass(frozen=True, slots=True)
class InForce:
    """A plan in force, and how it serves the jobs of now."""

    seats: tuple[Seat, ...]
    """As it was made, with jobs that are gone."""
    cells: tuple[Cell, ...]
    """Of the jobs that are still there."""
    score: FleetScore | None = None
    """Of those; None where it cannot be kept."""
    reason: str = ""
    """Why it cannot be kept."""


def read_seats(path: Path) -> tuple[Seat, ...]:
    """Seats of a file that ``plexrl plan --output`` wrote.

    Raises
    ------
    InputError
        It cannot be read, or is no such plan.
    """
    return read_fleet_plan(path)[0].seats


def read_fleet_plan(path: Path) -> tuple[SeatPlan, Mapping[str, object]]:
    """Seats and rule of a file that ``plexrl plan --output`` wrote, and all that stands in it.

    Raises
    ------
    InputError
        It cannot be read, or is no such plan.
    """
    data = load(path)
    try:
        plan = SeatPlan.from_json(data)
    except PlanError as error:
        raise InputError(f"{path}: {error}") from error
    assert isinstance(data, Mapping)
    return plan, data


def in_force(
    fleet: Fleet, seats: tuple[Seat, ...], made_of: Sequence[Cell] | None = None
) -> InForce:
    """Try a plan on the jobs and groups of now.

    Parameters
    ----------
    fleet
        Jobs and groups of now.
    seats
        The plan.
    made_of
        Its cells, if they are known and their jobs are all still there.
    """
    jobs = {job.name: job for job in fleet.jobs}
    kept = [seat for seat in seats if seat.job in jobs]
    here = [jobs[seat.job] for seat in kept]
    if made_of is None:
        cells = cells_of(fleet.market, here, kept)
    else:
        cells = tuple(
            replace(cell, jobs=tuple(jobs[job.name] for job in cell.jobs)) for cell in made_of
        )
    if not cells:
        return InForce(seats, cells, reason="none of its jobs is still there")
    broken = verify_seats(fleet.market, here, kept, fleet.names).violations
    if broken:
        return InForce(seats, cells, reason=broken[0])
    try:
        return InForce(seats, cells, scored(cells, len(fleet.jobs)))
    except ProblemError as error:
        return InForce(seats, cells, reason=str(error))
