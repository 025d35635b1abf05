"""Plans jobs that use several pools: who shares how many groups of each, by right-sizing."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import solver
from plexrl.cli.fleetfile import Fleet
from plexrl.cli.planner_fleet_force import FORMAT, InForce
from plexrl.cli.planner_fleet_scores import scored, scoring_s
from plexrl.cli.problemfile import PRICE_UNITS
from plexrl.errors import InputError
from plexrl.spelling import counted
from solver.arrangements import Cell, Market, make_cell
from solver.cellvalue import Effort
from solver.policies import shortest_first
from solver.queueing import Turn
from solver.rightsizing import Standing, right_size
from solver.scoring import FleetScore
from solver.seating import Seat, num_needed, seats_of, verify_seats
from solver.workloads import Role

MARGIN = 0.03
"""Share of a slowdown limit kept free for draws that the planner does not see."""
LEAST_GAIN = 0.005
"""Share of the price per unit of work by which a plan has to beat the one in force before jobs
move: less is within what simulation errs by."""
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
        return len({group for seat in self.seats for group in (*seat.rollout, *seat.train)})

    def to_json(self) -> dict[str, object]:
        """The plan as JSON types."""
        return {
            "format": FORMAT,
            "seats": [seat.to_json() for seat in self.seats],
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
        A plan in force, which is kept unless a better one is found; jobs then stay on their groups
        as far as the better one lets them.

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
        own = (make_cell(fleet.market, [job]) for job in fleet.jobs)
        first_s = budget_s * (FIRST_SHARE if _short(fleet, own) else 1.0)
        known = () if self.before is None else self.before.cells
        cells = self._sized(fleet.market, self.is_by_price, first_s, known)
        short, staying = _short(fleet, cells), self._staying()
        if staying and (short or not self._is_better(cells, staying)):
            self.tell("nothing better was found: jobs stay where they are")
            return staying
        if short:
            pools = " and ".join(fleet.pools[role] for role in short)
            self.tell(f"there are too few groups of pool {pools}: looking for plans with fewer")
            market = _dearer(fleet.market, short)
            cells = self._sized(market, True, budget_s - first_s, cells)
        return tuple(replace(cell, market=fleet.market) for cell in cells)

    def _sized(
        self, market: Market, is_by_price: bool, budget_s: float, known: Sequence[Cell]
    ) -> tuple[Cell, ...]:
        effort = Effort(
            steps=ENDLESS_STEPS,
            margin=MARGIN,
            turn=Turn.SHORTEST_FIRST,
            is_by_price=is_by_price,
        )
        return right_size(
            market,
            self.fleet.jobs,
            dispatch=shortest_first,
            effort=effort,
            seed=self.seed,
            budget_s=budget_s,
            known=[{job.name for job in cell.jobs} for cell in known],
            on_standing=_Teller(self.tell, is_by_price, market.dedicated_price),
        )

    def _staying(self) -> tuple[Cell, ...]:
        """Everybody stays, and newcomers have groups of their own; empty if that is no plan."""
        before, fleet = self.before, self.fleet
        if before is None or before.score is None:
            return ()
        seated = {job.name for cell in before.cells for job in cell.jobs}
        new = [make_cell(fleet.market, [job]) for job in fleet.jobs if job.name not in seated]
        cells = (*before.cells, *new)
        return () if _short(fleet, cells) else cells

    def _is_better(self, cells: Sequence[Cell], staying: Sequence[Cell]) -> bool:
        """Whether cells are worth moving for, under draws that confirm plans."""
        new, old = (
            scored(some, len(self.fleet.jobs), Effort().confirm_seeds) for some in (cells, staying)
        )
        if old.attainment < new.attainment:
            return True
        price = new.price + self._moving_price(cells)
        if self.is_by_price:
            return price < old.price
        return price / new.work < old.price / old.work * (1 - LEAST_GAIN)

    def _moving_price(self, cells: Sequence[Cell]) -> float:
        """What the groups cost that serve nobody until the states of moved jobs are there."""
        fleet, market = self.fleet, self.fleet.market
        before = {} if self.before is None else {seat.job: seat for seat in self.before.seats}
        prices = {Role.TRAIN: market.train_price, Role.ROLLOUT: market.rollout_price}
        lost = 0.0
        for seat in seats_of(cells, fleet.names, tuple(before.values())):
            if seat.job in before:
                for role in fleet.pools:
                    got = set(seat.groups(role)).difference(before[seat.job].groups(role))
                    lost += len(got) * prices[role] * fleet.move_s[seat.job]
        return lost / fleet.horizon_s


def _short(fleet: Fleet, cells: Iterable[Cell]) -> list[Role]:
    """Roles of which there are fewer groups than cells need."""
    cells = tuple(cells)
    return [role for role, names in fleet.names.items() if num_needed(cells, role) > len(names)]


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
