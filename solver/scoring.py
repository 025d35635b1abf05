"""Scores cells by simulation: slowdowns with the same draws, work done, attainment of limits."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from solver.arrangements import Arrangement, Cell, Market, make_cell
from solver.dispatch.events import DispatchPlan
from solver.dispatch.views import Rule
from solver.errors import ProblemError
from solver.queueing import queue_ends
from solver.simulate import SimJob, Tape, simulate
from solver.workloads import Tail, Workload

_CACHED_ENDS = 8192
TOLERATED_SHARE = 0.85
"""Share of the slowdown that its limit allows a job before it goes first."""
MOST_ROUNDS = 4
"""Times all jobs one after the other: longer than that an iteration takes in no sane cell."""
MAX_SPREAD = 200
"""Iterations of the shortest job while the longest passes one, at most."""
LEAST_TOLERANCE = 0.01
"""Lag that even a job tolerates whose limit allows none."""


Dispatch = Callable[[Cell], tuple[DispatchPlan, Rule]]
"""Gives the dispatch plan and the rule of a cell."""


@dataclass(frozen=True, slots=True)
class CellScore:
    """One cell under one noise seed."""

    price: float
    """Per second, of its groups."""
    slowdowns: Mapping[str, float]
    """Job → mean iteration shared ÷ alone in the same arrangement, with the same draws."""
    periods_s: Mapping[str, float]
    """Job → mean iteration in seconds."""
    is_kept: Mapping[str, bool]
    """Job → whether its slowdown is within its limit."""


@dataclass(frozen=True, slots=True)
class FleetScore:
    """All cells of a policy under all noise seeds it was scored on."""

    price: float
    """Per second, of all groups."""
    work: float
    """Sum of weight ÷ slowdown over jobs, averaged over seeds: seconds alone done per second."""
    attainment: float
    """Share of (job, seed) within their limits."""
    worst: float
    """Largest slowdown ÷ limit."""
    num_jobs: int
    periods_s: Mapping[str, float]
    """Job → mean iteration in seconds, averaged over seeds."""
    slowdowns: Mapping[str, float]
    """Job → slowdown, averaged over seeds."""

    def saving(self, dedicated_price: float) -> float:
        """Share of the price per unit of work saved over groups of its own for each job.

        Parameters
        ----------
        dedicated_price
            What the own groups of a job of weight 1 cost per second, at full speed.
        """
        return 1 - self.price / (dedicated_price * self.work)


def horizon_s(cell: Cell, cycles: int) -> float:
    """Time in which the slowest job passes that many iterations even at its limit.

    Limits far beyond what the jobs together could slow one down do not count.
    """
    slowest_s = max(job.mean_s * job.slowdown_limit for job in cell.jobs)
    return cycles * min(slowest_s, MOST_ROUNDS * sum(job.mean_s for job in cell.jobs))


def is_even(cell: Cell) -> bool:
    """Whether its jobs are so alike in length that a simulation of all of them comes to an end."""
    shortest_s = min(job.mean_s for job in cell.jobs)
    return len(cell.jobs) == 1 or horizon_s(cell, 1) <= MAX_SPREAD * shortest_s


def score_cell(
    cell: Cell,
    dispatch: Dispatch,
    seed: int,
    *,
    cycles: int = 100,
    tail: Tail = Tail.LOGNORMAL,
) -> CellScore:
    """Run a cell through the arbiter under one noise seed.

    Raises
    ------
    ProblemError
        Its jobs differ too much in length (`is_even`), or one ended no iteration in the time.
    """
    if not is_even(cell):
        raise ProblemError(
            f"jobs {', '.join(job.name for job in cell.jobs)} share groups, and the shortest would "
            f"pass over {MAX_SPREAD} iterations in one of the longest; keep them apart"
        )
    until_s = horizon_s(cell, cycles)
    compiled = cell.compile(seed, until_s, tail)
    if len(compiled) == 1:
        ends = {compiled[0].name: alone_ticks(compiled[0], cell.market)}
    else:
        plan, rule = dispatch(cell)
        done = simulate(compiled, plan, rule, seed=seed, until_s=until_s)
        ends = dict(done.ends_ticks)
    alone = {job.name: alone_ticks(job, cell.market) for job in compiled}
    slowdowns = {name: found[-1] / alone[name][len(found) - 1] for name, found in ends.items()}
    return CellScore(
        price=cell.price,
        slowdowns=slowdowns,
        periods_s={name: found[-1] / len(found) / 1000 for name, found in ends.items()},
        is_kept={job.name: slowdowns[job.name] <= job.slowdown_limit for job in cell.jobs},
    )


def score_fleet(
    cells: Sequence[Cell],
    dispatch: Dispatch,
    seeds: Iterable[int],
    *,
    cycles: int = 100,
    tail: Tail = Tail.LOGNORMAL,
) -> FleetScore:
    """Run every cell under every noise seed."""
    seeds = tuple(seeds)
    scores = [
        [score_cell(cell, dispatch, seed, cycles=cycles, tail=tail) for cell in cells]
        for seed in seeds
    ]
    return fleet_score(cells, scores)


def fleet_score(cells: Sequence[Cell], scores: Sequence[Sequence[CellScore]]) -> FleetScore:
    """What all cells do together.

    Parameters
    ----------
    cells
        The cells.
    scores
        Per noise seed those of the cells.
    """
    flat, num_seeds = [score for row in scores for score in row], len(scores)
    kept = [is_kept for score in flat for is_kept in score.is_kept.values()]
    limits = {job.name: job.slowdown_limit for cell in cells for job in cell.jobs}
    weights = {job.name: cell.market.weight(job) for cell in cells for job in cell.jobs}
    return FleetScore(
        price=sum(cell.price for cell in cells),
        work=sum(weights[n] / value for score in flat for n, value in score.slowdowns.items())
        / num_seeds,
        attainment=sum(kept) / len(kept),
        worst=max(value / limits[n] for score in flat for n, value in score.slowdowns.items()),
        num_jobs=len(limits),
        periods_s=_means((score.periods_s for score in flat), limits, num_seeds),
        slowdowns=_means((score.slowdowns for score in flat), limits, num_seeds),
    )


def _means(
    found: Iterable[Mapping[str, float]], names: Iterable[str], num_seeds: int
) -> dict[str, float]:
    total = dict.fromkeys(names, 0.0)
    for values in found:
        for name, value in values.items():
            total[name] += value
    return {name: value / num_seeds for name, value in total.items()}


def tolerances(jobs: Sequence[Workload]) -> dict[str, float]:
    """Job → the lag at which it goes first where otherwise the shortest does."""
    return {job.name: TOLERATED_SHARE * (job.slowdown_limit - 1) + LEAST_TOLERANCE for job in jobs}


def alone_ticks(job: SimJob, market: Market) -> tuple[int, ...]:
    """Ticks at which a job's iterations end on groups of its own, in its own arrangement.

    Where jobs are colocated and asynchronous, its rollouts and its training meet on its one group.
    """
    if job.staleness and market.arrangement is Arrangement.COLOCATED:
        return _met_ends(job)
    # The same lengths give the same ends wherever the job sits; the tape is kept with them, so
    # that its identity stays its own.
    key = id(job.tape), job.ahead_ops, job.staleness
    if not job.tape or key not in _own_ends:
        if len(_own_ends) >= _CACHED_ENDS:
            _own_ends.clear()
        _own_ends[key] = job.tape, tuple(job.alone_ends(0))
    return _own_ends[key][1]


_own_ends: dict[tuple[int, int, int], tuple[Tape, tuple[int, ...]]] = {}


@lru_cache(maxsize=_CACHED_ENDS)
def _met_ends(job: SimJob) -> tuple[int, ...]:
    return tuple(queue_ends([job], None)[0])


def period_alone_s(
    market: Market, job: Workload, seed: int, *, cycles: int = 100, tail: Tail = Tail.LOGNORMAL
) -> float:
    """Mean iteration of a job on groups of its own in the market's arrangement."""
    cell = make_cell(market, [job])
    (compiled,) = cell.compile(seed, horizon_s(cell, cycles), tail)
    ends = alone_ticks(compiled, market)
    return ends[-1] / len(ends) / 1000
