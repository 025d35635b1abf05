"""What a new plan of several pools changes against one in force, job by job and pool by pool."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from plexrl.cli.fleetfile import Fleet
from plexrl.cli.planner_fleet import FleetPlan
from plexrl.cli.planner_fleet_force import InForce
from plexrl.cli.planner_fleet_moves import Moves, moves
from plexrl.cli.problemfile import PRICE_UNITS
from plexrl.spelling import as_counted
from solver.seating import Seat, groups_of
from solver.workloads import Role

_DIGITS = 3
"""Of slowdowns that are told apart."""


@dataclass(frozen=True, slots=True)
class SeatChange:
    """What changes for one job."""

    job: str
    old: Seat | None
    """None: it is new."""
    new: Seat | None
    """None: it is gone."""
    old_slowdown: float | None
    """As it would be if nobody moved; None where that cannot be."""
    new_slowdown: float | None

    @property
    def is_moved(self) -> bool:
        """Whether it has other groups than before, or comes or goes."""
        if self.old is None or self.new is None:
            return True
        old, new = self.old, self.new
        return any(set(old.groups(role)) != set(new.groups(role)) for role in _SEATED)

    @property
    def is_any(self) -> bool:
        """Whether anything changes."""
        return self.is_moved or _rounded(self.old_slowdown) != _rounded(self.new_slowdown)

    def to_json(self) -> dict[str, object]:
        """The change as JSON types."""
        return {
            "job": self.job,
            "old": None if self.old is None else self.old.to_json(),
            "new": None if self.new is None else self.new.to_json(),
            "old_slowdown": self.old_slowdown,
            "new_slowdown": self.new_slowdown,
        }


@dataclass(frozen=True, slots=True)
class PoolChange:
    """What changes for one pool."""

    pool: str
    num_before: int
    """Groups in use."""
    num_after: int
    freed: tuple[str, ...]
    taken: tuple[str, ...]

    def to_json(self) -> dict[str, object]:
        """The change as JSON types."""
        return {
            "pool": self.pool,
            "old_groups": self.num_before,
            "new_groups": self.num_after,
            "freed": list(self.freed),
            "taken": list(self.taken),
        }


@dataclass(frozen=True, slots=True)
class FleetChanges:
    """What a new plan changes."""

    rows: tuple[SeatChange, ...]
    """Jobs whose groups or slowdown differ."""
    pools: tuple[PoolChange, ...]
    staying: tuple[float, float] | None
    """Saving and share of limits kept of the plan in force for the jobs of now that it seats; None
    where it cannot be kept."""
    reason: str
    """Why it cannot be kept."""
    moves: Moves
    """What bringing jobs to other groups takes."""

    def to_json(self) -> dict[str, object]:
        """The changes as JSON types: four entries of the answer."""
        in_force: dict[str, object] = {"reason": self.reason}
        if self.staying is not None:
            saving, attainment = self.staying
            in_force = {"saving": saving, "within_limits": attainment}
        return {
            "changes": [row.to_json() for row in self.rows],
            "pool_changes": [pool.to_json() for pool in self.pools],
            "moves": {
                "num_jobs": self.moves.num_jobs,
                "group_s": self.moves.group_s,
                "price": self.moves.price / PRICE_UNITS,
            },
            "in_force": in_force,
        }


_SEATED = (Role.ROLLOUT, Role.TRAIN)


def fleet_changes(fleet: Fleet, before: InForce, plan: FleetPlan) -> FleetChanges:
    """Compare a plan with the one in force.

    Parameters
    ----------
    fleet
        Jobs and groups of now.
    before
        The plan in force.
    plan
        The new plan.
    """
    score = before.score
    staying = None
    if score is not None:
        staying = score.saving(fleet.market.dedicated_price), score.attainment
    return FleetChanges(
        tuple(row for row in _rows(before, plan) if row.is_any),
        tuple(_pools(fleet, before, plan)),
        staying,
        before.reason,
        moves(fleet, before.seats, plan.seats),
    )


def _rows(before: InForce, plan: FleetPlan) -> Iterator[SeatChange]:
    old, new = ({seat.job: seat for seat in seats} for seats in (before.seats, plan.seats))
    slowdowns = {} if before.score is None else before.score.slowdowns
    for job in sorted({*old, *new}, key=as_counted):
        yield SeatChange(
            job, old.get(job), new.get(job), slowdowns.get(job), plan.slowdowns.get(job)
        )


def _pools(fleet: Fleet, before: InForce, plan: FleetPlan) -> Iterator[PoolChange]:
    for role, pool in fleet.pools.items():
        old, new = groups_of(before.seats, role), groups_of(plan.seats, role)
        yield PoolChange(
            pool,
            len(old),
            len(new),
            tuple(sorted(old.keys() - new.keys(), key=as_counted)),
            tuple(sorted(new.keys() - old.keys(), key=as_counted)),
        )


def _rounded(slowdown: float | None) -> float | None:
    return None if slowdown is None else round(slowdown, _DIGITS)
