"""Runs the seats of a plan of several pools in simulation, under several rules."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from statistics import fmean

from plexrl.cli.fleetfile import Fleet
from plexrl.cli.planner_rehearsal import Rehearsal
from plexrl.errors import InputError
from solver.errors import ProblemError
from solver.policies import first_ready, shortest_first, smallest_share_first
from solver.scoring import Dispatch, score_fleet
from solver.seating import Seat, cells_of
from solver.workloads import Tail

RULES: tuple[tuple[str, Dispatch], ...] = (
    ("shortest first", shortest_first),
    ("smallest share first", smallest_share_first),
    ("first ready", first_ready),
)
"""Name and dispatch; the first is the one that plans are made with."""


def rehearse_fleet(
    fleet: Fleet,
    seats: Sequence[Seat],
    *,
    is_heavy: bool,
    cycles: int,
    seeds: Iterable[int],
    progress: Callable[[str], object] = lambda _text: None,
) -> tuple[Rehearsal, ...]:
    """Run the seats under each rule, all with the same draws.

    Parameters
    ----------
    fleet
        What the file says; ops vary as it says, too.
    seats
        Where each job runs, checked before.
    is_heavy
        Whether rollouts and waits have Pareto instead of lognormal lengths.
    cycles
        Iterations of the slowest job of a set that shares groups.
    seeds
        Noise seeds.
    progress
        Told what is run.

    Raises
    ------
    InputError
        A job ends no iteration in so few cycles, or jobs that share differ too much in length.
    """
    seeds, cells = tuple(seeds), cells_of(fleet.market, fleet.jobs, seats)
    tail = Tail.PARETO if is_heavy else Tail.LOGNORMAL
    found = []
    for name, dispatch in RULES:
        progress(f"simulating {name}, {len(seeds)} seeds of {cycles} cycles")
        try:
            score = score_fleet(cells, dispatch, seeds, cycles=cycles, tail=tail)
        except ProblemError as error:
            raise InputError(f"{cycles} cycles of this plan are not simulated: {error}") from error
        found.append(
            Rehearsal(
                name=name,
                slowdown_mean=fmean(score.slowdowns.values()),
                slowdown_worst=max(score.slowdowns.values()),
                attainment=score.attainment,
                saving=score.saving(fleet.market.dedicated_price),
                slowdowns=dict(score.slowdowns),
            )
        )
    return tuple(found)
