"""Which jobs a better plan of several pools moves: part by part, where that pays for its moves."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import networkx as nx

from plexrl.cli.fleetfile import Fleet
from plexrl.cli.planner_fleet_force import InForce
from plexrl.cli.planner_fleet_scores import scored
from solver.arrangements import Cell
from solver.cellvalue import Effort
from solver.scoring import FleetScore
from solver.seating import Seat, groups_of, num_needed, seats_of
from solver.workloads import Places, Role, Workload

LEAST_GAIN = 0.005
"""Share of the price per unit of work by which a part has to be better before its jobs move: less
is within what simulation errs by."""


@dataclass(frozen=True, slots=True)
class Moves:
    """What it takes to bring jobs to other groups."""

    num_jobs: int
    group_s: float
    """Seconds that groups serve nobody, until the states are there."""
    price: float
    """What those cost per second, as long as the plan is in force."""


def moves(fleet: Fleet, before: Sequence[Seat], after: Sequence[Seat]) -> Moves:
    """What moving from some seats to others takes; who comes or goes is not moved.

    Parameters
    ----------
    fleet
        Says how long groups serve nobody.
    before, after
        The seats.
    """
    old, shares = {seat.job: seat for seat in before}, {j.name: j.move_share for j in fleet.jobs}
    moved, lost, price = set[str](), 0.0, 0.0
    for seat in after:
        for role in fleet.pools if seat.job in old else ():
            got = set(seat.groups(role)).difference(old[seat.job].groups(role))
            if got:
                moved.add(seat.job)
            lost += len(got) * shares[seat.job]
            price += len(got) * shares[seat.job] * _price(fleet, role)
    return Moves(len(moved), lost * fleet.horizon_s, price)


def _price(fleet: Fleet, role: Role) -> float:
    return fleet.market.train_price if role is Role.TRAIN else fleet.market.rollout_price


def with_places(fleet: Fleet, before: InForce | None) -> tuple[Workload, ...]:
    """The jobs, told where they are."""
    if before is None:
        return fleet.jobs
    here = {seat.job: Places(seat.rollout, seat.train) for seat in before.seats}
    return tuple(replace(job, current=here.get(job.name, Places())) for job in fleet.jobs)


def is_short(fleet: Fleet, cells: Sequence[Cell]) -> list[Role]:
    """Roles of which there are fewer groups than cells need."""
    return [role for role, names in fleet.names.items() if num_needed(cells, role) > len(names)]


@dataclass(frozen=True, slots=True)
class Choice:
    """Two plans for the same jobs, of which each part is taken from either."""

    fleet: Fleet
    before: InForce
    staying: tuple[Cell, ...]
    """Everybody stays; newcomers have groups of their own."""
    better: tuple[Cell, ...]
    """What the search found."""
    is_by_price: bool

    def best(self) -> tuple[Cell, ...]:
        """The cells of each part that cost least, moves included; all stay where none pays."""
        ratio = self._ratio()
        parts = list(self._parts())
        taken = [new if self._is_worth(old, new, ratio) else old for old, new in parts]
        cells = tuple(cell for part in taken for cell in part)
        if not is_short(self.fleet, cells):
            return cells
        # A part that moves may need what another one frees: then all move, or nobody.
        return self.better if self._is_worth(self.staying, self.better, ratio) else self.staying

    def _ratio(self) -> float:
        """What a unit of work costs where everybody stays."""
        found = self._score(self.staying)
        return found.price / found.work

    def _parts(self) -> Iterator[tuple[tuple[Cell, ...], tuple[Cell, ...]]]:
        """Cells of both plans that have no job in common with any other."""
        graph: nx.Graph[tuple[bool, int] | str] = nx.Graph()
        both = ((False, self.staying), (True, self.better))
        for is_new, cells in both:
            for at, cell in enumerate(cells):
                graph.add_edges_from(((is_new, at), job.name) for job in cell.jobs)
        for part in nx.connected_components(graph):
            old, new = (
                tuple(cell for at, cell in enumerate(cells) if (is_new, at) in part)
                for is_new, cells in both
            )
            yield old, new

    def _is_worth(self, old: Sequence[Cell], new: Sequence[Cell], ratio: float) -> bool:
        """Whether the new cells cost less, or keep limits that the old ones break."""
        if _shapes(old) == _shapes(new):
            return False
        before, after = self._score(old), self._score(new)
        if before.attainment != after.attainment:
            return before.attainment < after.attainment
        price = after.price + self._moving_price(old, new)
        if self.is_by_price:
            return price < before.price
        least = LEAST_GAIN * before.price
        return price - ratio * after.work < before.price - ratio * before.work - least

    def _score(self, cells: Sequence[Cell]) -> FleetScore:
        """Under draws that confirm plans."""
        return scored(cells, len(self.fleet.jobs), Effort().confirm_seeds)

    def _moving_price(self, old: Sequence[Cell], new: Sequence[Cell]) -> float:
        """What the moves of a part cost, if the groups of all others are taken."""
        here = {job.name for cell in old for job in cell.jobs}
        mine = [seat for seat in self.before.seats if seat.job in here]
        others = [seat for seat in self.before.seats if seat.job not in here]
        names = _free(self.fleet, others, new)
        return moves(self.fleet, mine, seats_of(new, names, mine)).price


def _free(
    fleet: Fleet, others: Sequence[Seat], cells: Sequence[Cell]
) -> Mapping[Role, Sequence[str]]:
    """Groups that are left for cells; of a role that has too few, all there are."""
    found: dict[Role, Sequence[str]] = {}
    for role, names in fleet.names.items():
        taken = groups_of(others, role)
        left = [name for name in names if name not in taken]
        found[role] = left if num_needed(cells, role) <= len(left) else names
    return found


def _shapes(cells: Sequence[Cell]) -> set[tuple[frozenset[str], int, int]]:
    return {
        (frozenset(job.name for job in cell.jobs), cell.num_rollout, cell.num_train)
        for cell in cells
    }
