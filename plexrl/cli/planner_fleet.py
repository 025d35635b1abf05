"""Plans jobs that use several pools: who shares how many groups of each, by right-sizing."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import solver
from plexrl.cli.fleetfile import Fleet
from plexrl.cli.planner_fleet_force import InForce
from plexrl.cli.planner_fleet_moves import Choice, is_short, moves, with_places
from plexrl.cli.planner_fleet_scores import scored, scoring_s
from plexrl.cli.problemfile import PRICE_UNITS
from plexrl.errors import InputError
from plexrl.spelling import counted
from solver.arrangements import Cell, Market, make_cell
from solver.cellvalue import Effort
from solver.dispatch.shortest import ShortestFirst
from solver.policies import shortest_first
from solver.queueing import Turn
from solver.rightsizing import Standing, right_size
from solver.scoring import FleetScore, tolerances
from solver.seating import Seat, seats_of, verify_seats
from solver.seatplan import FORMAT, rule_to_json
from solver.workloads import Role

MARGIN = 0.015
"""Share of a slowdown limit kept free for draws that the planner does not see."""
SCARCE = 10.0
"""Times its price that a group counts of a pool of which there are too few."""
FIRST_SHARE = 0.7
"""Share of the time in which groups are not counted, where there may be too few."""
ENDLESS_STEPS = 10**6
"""Rounds of a search that only its budget ends."""


@dataclass(frozen=True, slots=True)
class FleetPlan:
    """Who sits where, what it costs, and how fast jobs get on."""

    cells: tuple[Cell, ...]
    """Sets of jobs that share groups with nobody else."""
    seats: tuple[Seat, ...]
    score: FleetScore
    """Under draws the planner did not see."""
    saving: float
    """Share of the price per unit of work saved over groups of its own for each job."""

    @property
    def slowdowns(self) -> Mapping[str, float]:
        """Job → simulated iteration time shared ÷ alone."""
        return self.score.slowdowns

    @property
    def num_groups(self) -> int:
        """Groups in use."""
        return len({group for seat in self.seats for group in seat.all_groups})

    @property
    def rule(self) -> ShortestFirst:
        """Who is next on its groups: the rule that the slowdowns are of."""
        return ShortestFirst(tolerances([job for cell in self.cells for job in cell.jobs]))

    def to_json(self) -> dict[str, object]:
        """The plan as JSON types."""
        return {
            "format": FORMAT,
            "seats": [seat.to_json() for seat in self.seats],
            "rule": rule_to_json(self.rule),
            "price": self.score.price / PRICE_UNITS,
            "saving": self.saving,
            "slowdowns": dict(self.slowdowns),
            "within_limits": self.score.attainment,
        }


def plan_fleet(
    fleet: Fleet,
    objective: solver.Objective,
    budget_s: float,
    seed: int,
    tell: Callable[[str], object] = lambda _text: None,
    before: InForce | None = None,
) -> FleetPlan:
    """The cells with the least price per unit of work, or the least price alone.

    Parameters
    ----------
    fleet
        Jobs and groups.
    objective
        `GPU_HOURS` or `COST`.
    budget_s
        Seconds it may take in all.
    seed
        Of the search.
    tell
        Told in a sentence how far the search is, at most once a second.
    before
        A plan in force: a job moves only where that is worth what its move costs.

    Raises
    ------
    InputError
        The objective is another one.
    PlanError
        There are fewer groups than the jobs need in the best plan that was found.
    """
    if objective not in {solver.Objective.ROUND, *_BY_PRICE}:
        raise InputError(
            f"--objective {objective} is not planned where ops name pools; "
            f"take {' or '.join(_BY_PRICE)}"
        )
    search = _Search(fleet, _BY_PRICE.get(objective, False), seed, tell, before)
    num_scored = 1 if before is None else 3
    cells = search.run(max(budget_s - num_scored * scoring_s(len(fleet.jobs)), budget_s / 2))
    seats = seats_of(cells, fleet.names, () if before is None else before.seats)
    broken = verify_seats(fleet.market, fleet.jobs, seats, fleet.names).violations
    if broken:
        raise solver.PlanError(f"the plan failed its check: {broken[0]}")
    score = scored(cells, len(fleet.jobs))
    return FleetPlan(cells, seats, score, score.saving(fleet.market.dedicated_price))


_BY_PRICE = {solver.Objective.GPU_HOURS: False, solver.Objective.COST: True}


@dataclass(frozen=True, slots=True)
class _Search:
    """What is sought."""

    fleet: Fleet
    is_by_price: bool
    seed: int
    tell: Callable[[str], object]
    before: InForce | None

    def run(self, budget_s: float) -> tuple[Cell, ...]:
        """The best cells; the price of too few groups is raised where they need more."""
        fleet = self.fleet
        cells = self._sized(
            fleet.market, self.is_by_price, budget_s * self._first_share(), self._near()
        )
        short, staying = is_short(fleet, cells), self._staying()
        if staying and self.before is not None:
            if not short:
                choice = Choice(fleet, self.before, staying, cells, self.is_by_price)
                staying = choice.best()
            self._tell_moves(staying)
            return staying
        if short:
            pools = " and ".join(fleet.pools[role] for role in short)
            self.tell(f"there are too few groups of pool {pools}: looking for plans with fewer")
            market = _dearer(fleet.market, short)
            left_s = budget_s * (1 - self._first_share())
            cells = self._sized(market, True, left_s, [*map(_names, cells), *self._near()])
        return cells

    def _first_share(self) -> float:
        """Share of the time in which groups are not counted."""
        fleet = self.fleet
        if self.before is not None and is_short(fleet, self.before.cells):
            return 1 - FIRST_SHARE
        own = [make_cell(fleet.market, [job]) for job in fleet.jobs]
        return FIRST_SHARE if is_short(fleet, own) else 1.0

    def _near(self) -> list[frozenset[str]]:
        """Sets of the plan in force, and those that a newcomer or a lost group makes of them."""
        if self.before is None:
            return []
        here = [_names(cell) for cell in self.before.cells]
        seated = frozenset[str]().union(*here)
        moving = [frozenset({job.name}) for job in self.fleet.jobs if job.name not in seated]
        there = {group for groups in self.fleet.names.values() for group in groups}
        lost = {seat.job for seat in self.before.seats if not seat.all_groups <= there}
        moving += [names for names in here if names & lost]
        return [*here, *(one | other for one in moving for other in here if one != other)]

    def _tell_moves(self, cells: Sequence[Cell]) -> None:
        before = () if self.before is None else self.before.seats
        found = moves(self.fleet, before, seats_of(cells, self.fleet.names, before))
        if not found.num_jobs:
            self.tell("nothing better was found: jobs stay where they are")

    def _sized(
        self,
        market: Market,
        is_by_price: bool,
        budget_s: float,
        known: Sequence[frozenset[str]],
    ) -> tuple[Cell, ...]:
        effort = Effort(
            steps=ENDLESS_STEPS,
            margin=MARGIN,
            turn=Turn.SHORTEST_FIRST,
            is_by_price=is_by_price,
        )
        cells = right_size(
            market,
            with_places(self.fleet, self.before),
            dispatch=shortest_first,
            effort=effort,
            seed=self.seed,
            budget_s=budget_s,
            known=known,
            on_standing=_Teller(self.tell, is_by_price, market.dedicated_price),
        )
        # What moves and scarce groups cost is for the search alone.
        jobs = {job.name: job for job in self.fleet.jobs}
        return tuple(
            replace(cell, market=self.fleet.market, jobs=tuple(jobs[j.name] for j in cell.jobs))
            for cell in cells
        )

    def _staying(self) -> tuple[Cell, ...]:
        """Everybody stays, and newcomers have groups of their own; empty if that is no plan."""
        before, fleet = self.before, self.fleet
        if before is None or before.score is None:
            return ()
        seated = {job.name for cell in before.cells for job in cell.jobs}
        new = [job for job in fleet.jobs if job.name not in seated]
        taken = [name for seat in before.seats if seat.job in seated for name in seat.all_groups]
        pins = [name for job in new for name in (*job.pinned.rollout, *job.pinned.train)]
        if len(set(taken) | set(pins)) < len(set(taken)) + len(pins):
            # Somebody else is, or comes, where a newcomer has to be.
            return ()
        cells = (*before.cells, *(make_cell(fleet.market, [job]) for job in new))
        return () if is_short(fleet, cells) else cells


def _names(cell: Cell) -> frozenset[str]:
    return frozenset(job.name for job in cell.jobs)


def _dearer(market: Market, roles: Collection[Role]) -> Market:
    """The market where groups of some roles cost more."""
    return replace(
        market,
        train_price=market.train_price * (SCARCE if Role.TRAIN in roles else 1),
        rollout_price=market.rollout_price * (SCARCE if Role.ROLLOUT in roles else 1),
    )


class _Teller:
    """Says how far a search is."""

    def __init__(self, tell: Callable[[str], object], is_by_price: bool, own_price: float) -> None:
        self._tell = tell
        self._is_by_price = is_by_price
        self._own_price = own_price
        self._began_s = self._told_s = time.monotonic()

    def __call__(self, standing: Standing) -> None:
        now_s = time.monotonic()
        if standing.num_missed:
            self._tell(
                f"no time was left to confirm {counted(standing.num_missed, 'set')} of jobs; they "
                "have groups of their own: allow more with --budget"
            )
        elif now_s - self._told_s >= 1:
            self._told_s = now_s
            saved = f", at best {1 - standing.ratio / self._own_price:.1%} saved"
            self._tell(
                f"{now_s - self._began_s:7.2f} s  {counted(standing.num_tried, 'set')} of jobs "
                f"tried{'' if self._is_by_price else saved}"
            )
