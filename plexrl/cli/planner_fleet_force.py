"""A plan of several pools that is in force: read, and tried on the jobs and groups of now."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from plexrl.cli.fleetfile import Fleet
from plexrl.cli.planner_fleet_scores import scored
from plexrl.cli.problemfile import load
from plexrl.errors import InputError
from solver.arrangements import Cell
from solver.errors import ProblemError
from solver.scoring import FleetScore
from solver.seating import Seat, cells_of, verify_seats

FORMAT = 1
"""Of the files of such plans."""


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
    data = load(path)
    try:
        if not isinstance(data, Mapping) or data.get("format") != FORMAT:
            raise ValueError("no format")
        return tuple(
            Seat(str(row["job"]), tuple(map(str, row["rollout"])), tuple(map(str, row["train"])))
            for row in data["seats"]
        )
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(
            f"{path} has no seats as plexrl plan --output writes them where ops name pools"
        ) from error


def in_force(fleet: Fleet, seats: tuple[Seat, ...]) -> InForce:
    """Try a plan on the jobs and groups of now.

    Parameters
    ----------
    fleet
        Jobs and groups of now.
    seats
        The plan.
    """
    seated = {seat.job for seat in seats}
    jobs = [job for job in fleet.jobs if job.name in seated]
    here = {job.name for job in jobs}
    kept = [seat for seat in seats if seat.job in here]
    cells = cells_of(fleet.market, jobs, kept)
    if not cells:
        return InForce(seats, cells, reason="none of its jobs is still there")
    broken = verify_seats(fleet.market, jobs, kept, fleet.names).violations
    if broken:
        return InForce(seats, cells, reason=broken[0])
    try:
        return InForce(seats, cells, scored(cells, len(fleet.jobs)))
    except ProblemError as error:
        return InForce(seats, cells, reason=str(error))
