"""Plans jobs that use several pools: who shares how many groups of each, by right-sizing."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import RenderableType
from rich.text import Text

import solver
from plexrl.cli.fleetfile import Fleet
from plexrl.cli.planner_tables import MAX_ROWS, close_table, plain_table
from plexrl.cli.problemfile import PRICE_UNITS, load
from plexrl.errors import InputError
from plexrl.spelling import counted
from solver.arrangements import Cell
from solver.cellvalue import Effort
from solver.policies import shortest_first
from solver.queueing import Turn
from solver.rightsizing import Standing, right_size
from solver.scoring import FleetScore, score_fleet
from solver.seating import Seat, seats_of, verify_seats

FORMAT = 1
MARGIN = 0.03
"""Share of a slowdown limit kept free for draws that the planner does not see."""
SCORING_SEEDS = (5_000, 5_001)
"""Noise seeds of the slowdowns that are told: none that planned."""
CYCLES = 60
"""Most iterations of the slowest job in those."""
LEAST_CYCLES = 10
"""Fewest of them: where there are many jobs, fewer tell as much."""
SCORED_ITERATIONS = 4_000
"""Iterations of all jobs, over all seeds, that are simulated as far as `LEAST_CYCLES` allow."""
ITERATION_S = 2e-4
"""About what simulating one takes."""
ENDLESS_STEPS = 10**6
"""Rounds of a search that only its budget ends."""


@dataclass(frozen=True, slots=True)
class FleetPlan:
    """Who sits where, what it costs, and how fast jobs get on."""

    cells: tuple[Cell, ...]
    """Sets of jobs that share groups with nobody else."""
    seats: tuple[Seat, ...]
    score: FleetScore
    slowdowns: Mapping[str, float]
    """Job → simulated iteration time shared ÷ alone, under draws the planner did not see."""
    saving: float
    """Share of the price per unit of work saved over groups of its own for each job."""

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

    Raises
    ------
    InputError
        The objective is another one.
    PlanError
        There are fewer groups than the jobs need.
    """
    if objective not in {solver.Objective.ROUND, *_BY_PRICE}:
        raise InputError(
            f"--objective {objective} is not planned where ops name pools; "
            f"take {' or '.join(_BY_PRICE)}"
        )
    effort = Effort(
        steps=ENDLESS_STEPS,
        margin=MARGIN,
        turn=Turn.SHORTEST_FIRST,
        is_by_price=_BY_PRICE.get(objective, False),
    )
    cells = right_size(
        fleet.market,
        fleet.jobs,
        dispatch=shortest_first,
        effort=effort,
        seed=seed,
        budget_s=max(budget_s - _scoring_s(len(fleet.jobs)), budget_s / 2),
        on_standing=_Teller(tell, effort.is_by_price, fleet.market.dedicated_price),
    )
    seats = seats_of(cells, fleet.names)
    broken = verify_seats(fleet.market, fleet.jobs, seats, fleet.names).violations
    if broken:
        raise solver.PlanError(f"the plan failed its check: {broken[0]}")
    return _scored(fleet, cells, seats)


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


_BY_PRICE = {solver.Objective.GPU_HOURS: False, solver.Objective.COST: True}


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


def fleet_tables(fleet: Fleet, plan: FleetPlan) -> Sequence[RenderableType]:
    """Seats with slowdowns, and what it costs and saves."""
    jobs = {job.name: job for job in fleet.jobs}
    table = plain_table("Jobs", "job", "first pool", "last pool", "slowdown", "limit", left=3)
    for seat in plan.seats[:MAX_ROWS]:
        table.add_row(
            seat.job,
            ", ".join(seat.rollout),
            ", ".join(seat.train),
            f"{plan.slowdowns[seat.job]:.3f}",
            f"{jobs[seat.job].slowdown_limit:.3f}",
        )
    close_table(table, len(plan.seats))
    lines = [
        ("arranged", str(fleet.market.arrangement).replace("_", " ")),
        ("uses", f"{counted(plan.num_groups, 'group')} for {counted(len(plan.seats), 'job')}"),
        ("price", f"{plan.score.price / PRICE_UNITS:.5g}"),
        ("saving", f"{plan.saving:.1%} of the price per unit of work, against groups of their own"),
        ("limits", f"{plan.score.attainment:.1%} kept in simulation under draws not planned with"),
        ("verified", "memory, places and seats, independently"),
    ]
    return [table, Text("\n".join(f"{name:10} {value}" for name, value in lines))]


def _cycles(num_jobs: int) -> int:
    most = SCORED_ITERATIONS // (num_jobs * len(SCORING_SEEDS))
    return min(max(most, LEAST_CYCLES), CYCLES)


def _scoring_s(num_jobs: int) -> float:
    return ITERATION_S * num_jobs * len(SCORING_SEEDS) * _cycles(num_jobs)


def _scored(fleet: Fleet, cells: Sequence[Cell], seats: tuple[Seat, ...]) -> FleetPlan:
    score = score_fleet(cells, shortest_first, SCORING_SEEDS, cycles=_cycles(len(fleet.jobs)))
    saving = score.saving(fleet.market.dedicated_price)
    return FleetPlan(tuple(cells), seats, score, score.slowdowns, saving)
