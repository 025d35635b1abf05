"""Scores plans of several pools by simulation, as long as that pays for its time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache

from solver.arrangements import Cell
from solver.policies import shortest_first
from solver.scoring import CellScore, FleetScore, fleet_score, score_cell

SCORING_SEEDS = (5_000, 5_001)
"""Noise seeds of the slowdowns that are told: none that planned."""
CYCLES = (60, 45, 32, 22, 15, 10)
"""Iterations of the slowest job in those: where there are many jobs, fewer tell as much. A job more
or less mostly leaves the number as it is, and with it what is known of other cells."""
SCORED_ITERATIONS = 4_000
"""Iterations of all jobs, over all seeds, that are simulated as far as `CYCLES` allow."""
ITERATION_S = 2e-4
"""About what simulating one takes."""
_CACHED_SCORES = 8192


def scored(
    cells: Sequence[Cell], num_jobs: int, seeds: Iterable[int] = SCORING_SEEDS
) -> FleetScore:
    """How the jobs of cells get on, under the rule that plans are made with.

    Parameters
    ----------
    cells
        Who shares how many groups.
    num_jobs
        Jobs of all cells that are compared: they are run equally long.
    seeds
        Noise seeds.

    Raises
    ------
    ProblemError
        Jobs that share differ too much in length to be simulated.
    """
    cycles = _cycles(num_jobs)
    return fleet_score(cells, [[_scored(cell, seed, cycles) for cell in cells] for seed in seeds])


@lru_cache(maxsize=_CACHED_SCORES)
def _scored(cell: Cell, seed: int, cycles: int) -> CellScore:
    """Plans that are compared have most of their cells in common."""
    if len(cell.jobs) == 1:
        # Alone it takes as long as alone, whatever is drawn.
        (job,) = cell.jobs
        return CellScore(cell.price, {job.name: 1.0}, {job.name: job.mean_s}, {job.name: True})
    return score_cell(cell, shortest_first, seed, cycles=cycles)


def scoring_s(num_jobs: int) -> float:
    """About what scoring takes."""
    return ITERATION_S * num_jobs * len(SCORING_SEEDS) * _cycles(num_jobs)


def _cycles(num_jobs: int) -> int:
    most = SCORED_ITERATIONS // (num_jobs * len(SCORING_SEEDS))
    return next((cycles for cycles in CYCLES if cycles <= most), CYCLES[-1])
