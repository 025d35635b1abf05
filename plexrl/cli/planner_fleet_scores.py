"""Scores plans of several pools by simulation, as long as that pays for its time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from solver.arrangements import Cell
from solver.policies import shortest_first
from solver.scoring import FleetScore, score_fleet

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
    return score_fleet(cells, shortest_first, seeds, cycles=_cycles(num_jobs))


def scoring_s(num_jobs: int) -> float:
    """About what scoring takes."""
    return ITERATION_S * num_jobs * len(SCORING_SEEDS) * _cycles(num_jobs)


def _cycles(num_jobs: int) -> int:
    most = SCORED_ITERATIONS // (num_jobs * len(SCORING_SEEDS))
    return min(max(most, LEAST_CYCLES), CYCLES)
