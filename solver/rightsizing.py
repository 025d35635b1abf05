"""Right-sizing: which jobs share how many groups, so that a unit of work costs least.

Set partitioning into cells by large-neighbourhood search. Cells are screened by necessary
conditions and valued by `solver.queueing` on planning seeds; those of the answer are confirmed by
the simulator of the very arbiter and rule that run, and a cell that fails there is never used
again. The ratio of price to work is minimised by Dinkelbach's method.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations

import networkx as nx

from solver.arrangements import Arrangement, Cell, Market, make_cell
from solver.queueing import queue_ends
from solver.scoring import Dispatch, alone_ticks, horizon_s, score_cell
from solver.workloads import Role, Workload


@dataclass(frozen=True, slots=True)
class Effort:
    """How hard to search; the same effort and seed give the same answer."""

    steps: int = 300
    """Neighbourhoods looked into."""
    cycles: int = 20
    """Iterations of the slowest job that value a cell."""
    margin: float = 0.01
    """Share of a slowdown limit kept free for draws that the planner does not see."""
    seeds: tuple[int, ...] = (10_000,)
    """Noise seeds that value a cell."""
    confirm_seeds: tuple[int, ...] = (10_001, 10_002)
    """Noise seeds that confirm a cell."""
    confirm_cycles: int = 40
    """Iterations of the slowest job that confirm a cell."""
    is_lag_first: bool = False
    """Value cells by the rule that serves the most lagging job, rather than the first ready."""
    is_kept: bool = False
    """Value cells as if jobs keep their group between ops without a wait."""
    is_by_price: bool = False
    """Minimise the price per second alone: a slowdown within its limit counts for nothing."""
    max_cell_jobs: int = 8
    """Most jobs of one cell, over all its groups."""
    max_rounds: int = 8
    """Confirmations at most."""


@dataclass(frozen=True, slots=True)
class Value:
    """What a cell is worth to the search."""

    cell: Cell
    work: float
    """Sum of 1 ÷ slowdown over its jobs: what it does per second, in seconds alone."""

    def reduced(self, theta: float) -> float:
        """Price above what its work is worth."""
        return self.cell.price - theta * self.work


@dataclass(slots=True, eq=False)
class Option:
    """A cell that is possible as far as necessary conditions tell; valued when it is asked for."""

    cell: Cell
    most_work: float
    """No schedule does more work."""
    _value: Value | None = None
    _is_valued: bool = False

    def value(self, effort: Effort) -> Value | None:
        """Its value; None if a job exceeds its limit."""
        if not self._is_valued:
            self._value, self._is_valued = appraise(self.cell, effort), True
        return self._value


@dataclass(slots=True, eq=False)
class Sizing:
    """A search under way: the cells in use, and everything learned about others."""

    market: Market
    effort: Effort
    theta: float
    rng: random.Random
    shapes: dict[frozenset[str], tuple[Option, ...]] = field(default_factory=dict)
    banned: set[Shape] = field(default_factory=set)
    """Cells that failed the confirmation."""

    def measure(self, cells: Sequence[Value]) -> float:
        """What the search minimises over all cells."""
        return _price(cells) if self.effort.is_by_price else _ratio(cells)

    def best(self, jobs: Sequence[Workload], cutoff: float) -> Value | None:
        """The best cell for exactly these jobs; None if none is reduced below the cutoff.

        Cells are valued in the order of what they could be worth at most, and only as far as one
        may still be the best.
        """
        key = frozenset(job.name for job in jobs)
        if key not in self.shapes:
            ordered = sorted(jobs, key=lambda job: job.name)
            self.shapes[key] = tuple(_options(self.market, ordered))
        theta, found = self.theta, None
        options = self.shapes[key]
        for option in sorted(options, key=lambda o: o.cell.price - theta * o.most_work):
            if option.cell.price - theta * option.most_work >= cutoff:
                break
            if shape(option.cell) in self.banned:
                continue
            value = option.value(self.effort)
            if value is not None and value.reduced(theta) < cutoff:
                found, cutoff = value, value.reduced(theta)
        return found


Shape = tuple[frozenset[str], int, int]
"""Jobs, number of rollout groups and of train groups of a cell."""


def shape(cell: Cell) -> Shape:
    """What tells a cell from others."""
    jobs = frozenset(job.name for job in cell.jobs)
    return jobs, len(set(cell.rollout_groups)), len(set(cell.train_groups))


def right_size(
    market: Market,
    jobs: Sequence[Workload],
    *,
    dispatch: Dispatch,
    effort: Effort | None = None,
    seed: int = 0,
) -> tuple[Cell, ...]:
    """Cells that serve every job within its limit at the least price per unit of work.

    Parameters
    ----------
    market
        Arrangement and prices; its `max_jobs` bounds how many share a group.
    jobs
        The jobs.
    dispatch
        Plan and rule that the cells will run under.
    effort
        How hard to search.
    seed
        Of the search.
    """
    effort = Effort() if effort is None else effort
    theta = 0.0 if effort.is_by_price else market.dedicated_price
    sizing = Sizing(market, effort, theta, random.Random(seed))
    cells = min((_matched(sizing, jobs), _in_rows(sizing, jobs)), key=sizing.measure)
    confirmed: set[Shape] = set()
    for _ in range(effort.max_rounds):
        cells = _search(sizing, cells, effort.steps)
        failed = []
        for value in cells:
            if len(value.cell.jobs) == 1 or shape(value.cell) in confirmed:
                continue
            if _is_confirmed(value.cell, dispatch, effort):
                confirmed.add(shape(value.cell))
            else:
                sizing.banned.add(shape(value.cell))
                failed.append(value)
        if not failed:
            break
        kept = [value for value in cells if value not in failed]
        loose = [job for value in failed for job in value.cell.jobs]
        repaired = [*kept, *_in_rows(sizing, loose)]
        cells = min((repaired, _in_rows(sizing, jobs)), key=sizing.measure)
        effort = replace(effort, steps=max(effort.steps // 2, 10))
    else:
        cells = list(_split_unconfirmed(market, cells, confirmed))
    return tuple(value.cell for value in cells)


def appraise(cell: Cell, effort: Effort) -> Value | None:
    """Work of a cell by the quick look; None if a job exceeds its limit less the margin."""
    until_s = horizon_s(cell, effort.cycles)
    mean = dict.fromkeys((job.name for job in cell.jobs), 0.0)
    for seed in effort.seeds:
        compiled = cell.compile(seed, until_s)
        found = queue_ends(
            compiled, until_s, is_lag_first=effort.is_lag_first, is_kept=effort.is_kept
        )
        for job, ends in zip(compiled, found, strict=True):
            if not ends:
                return None
            alone = alone_ticks(job, cell.market)[len(ends) - 1]
            mean[job.name] += ends[-1] / alone / len(effort.seeds)
    limits = {job.name: job.slowdown_limit * (1 - effort.margin) for job in cell.jobs}
    if any(mean[name] > limit for name, limit in limits.items()) and len(cell.jobs) > 1:
        return None
    return Value(cell, sum(1 / max(slowdown, 1.0) for slowdown in mean.values()))


def _alone(market: Market, job: Workload) -> Value:
    return Value(make_cell(market, [job]), 1.0)


def _is_confirmed(cell: Cell, dispatch: Dispatch, effort: Effort) -> bool:
    """Whether every job keeps its limit, with half the margin, under the arbiter itself."""
    longer = replace(effort, cycles=effort.confirm_cycles, margin=effort.margin / 2)
    for seed in effort.confirm_seeds:
        if appraise(cell, replace(longer, seeds=(seed,))) is None:
            return False
    scores = (
        score_cell(cell, dispatch, seed, cycles=longer.cycles) for seed in effort.confirm_seeds
    )
    return all(
        score.slowdowns[job.name] <= job.slowdown_limit * (1 - longer.margin)
        for score in scores
        for job in cell.jobs
    )


def _split_unconfirmed(
    market: Market, cells: Sequence[Value], confirmed: set[Shape]
) -> Iterable[Value]:
    for value in cells:
        if len(value.cell.jobs) == 1 or shape(value.cell) in confirmed:
            yield value
        else:
            yield from (_alone(market, job) for job in value.cell.jobs)


def _matched(sizing: Sizing, jobs: Sequence[Workload]) -> list[Value]:
    """The best pairs: a maximum-weight matching, exact for at most two jobs a cell."""
    graph: nx.Graph[str] = nx.Graph()
    alone = {job.name: _alone(sizing.market, job) for job in jobs}
    pairs: dict[frozenset[str], Value] = {}
    for _ in range(2):
        graph.clear()
        for first, second in combinations(jobs, 2):
            apart = _total(sizing, (alone[first.name], alone[second.name]))
            pair = sizing.best([first, second], apart)
            if pair is not None:
                gain = apart - pair.reduced(sizing.theta)
                graph.add_edge(first.name, second.name, weight=gain)
                pairs[frozenset((first.name, second.name))] = pair
        matching = nx.max_weight_matching(graph)
        paired = {name for edge in matching for name in edge}
        cells = [pairs[frozenset(edge)] for edge in sorted(map(sorted, matching))]
        cells += [value for name, value in alone.items() if name not in paired]
        _update(sizing, cells)
    return cells


def _in_rows(sizing: Sizing, jobs: Sequence[Workload]) -> list[Value]:
    """The best cells of jobs that follow each other in length: exact among those, by recursion."""
    row = sorted(jobs, key=lambda job: (job.mean_s, job.name))
    cells: list[Value] = []
    for _ in range(2):
        best: list[tuple[float, list[Value]]] = [(0.0, [])]
        for end in range(1, len(row) + 1):
            alone = _alone(sizing.market, row[end - 1])
            chosen = (best[end - 1][0] + alone.reduced(sizing.theta), [*best[end - 1][1], alone])
            for begin in range(max(end - sizing.effort.max_cell_jobs, 0), end - 1):
                before, kept = best[begin]
                value = sizing.best(row[begin:end], chosen[0] - before)
                if value is not None:
                    chosen = (before + value.reduced(sizing.theta), [*kept, value])
            best.append(chosen)
        cells = best[-1][1]
        _update(sizing, cells)
    return cells


def _price(cells: Sequence[Value]) -> float:
    return sum(value.cell.price for value in cells)


def _ratio(cells: Sequence[Value]) -> float:
    return _price(cells) / sum(value.work for value in cells)


def _search(sizing: Sizing, cells: Sequence[Value], steps: int) -> list[Value]:
    """Improve by taking cells apart and building them anew."""
    best = list(cells)
    _update(sizing, best)
    for step in range(steps):
        if sizing.rng.random() < 0.5:
            changed, taken = _moved(sizing, best)
        else:
            taken = _neighbourhood(sizing, best)
            changed = _rebuild(sizing, [job for value in taken for job in value.cell.jobs], [])
        if _total(sizing, changed) < _total(sizing, taken) - 1e-9:
            best = [value for value in best if value not in taken] + changed
        if step % 10 == 9:
            _update(sizing, best)
    _update(sizing, best)
    return best


def _moved(sizing: Sizing, cells: Sequence[Value]) -> tuple[list[Value], list[Value]]:
    """Take a few jobs out and put each where it costs least; cells after and before."""
    rng = sizing.rng
    taken = rng.sample(list(cells), min(rng.randint(1, 3), len(cells)))
    loose: list[Workload] = []
    kept: list[Value] = []
    for value in taken:
        out = rng.choice(value.cell.jobs)
        loose.append(out)
        stay = [job for job in value.cell.jobs if job is not out]
        if stay:
            rest = sizing.best(stay, math.inf) if len(stay) > 1 else _alone(sizing.market, stay[0])
            if rest is None:
                loose.extend(stay)
            else:
                kept.append(rest)
    kept += [value for value in cells if value not in taken]
    return _rebuild(sizing, loose, kept), list(cells)


def _update(sizing: Sizing, cells: Sequence[Value]) -> None:
    sizing.theta = 0.0 if sizing.effort.is_by_price else _ratio(cells)


def _total(sizing: Sizing, cells: Iterable[Value]) -> float:
    return sum(value.reduced(sizing.theta) for value in cells)


def _neighbourhood(sizing: Sizing, cells: Sequence[Value]) -> list[Value]:
    """One cell and some whose jobs are about as long, or some drawn at random."""
    rng = sizing.rng
    first = rng.choice(cells)
    others = [value for value in cells if value is not first]
    if rng.random() < 0.6:
        others.sort(key=lambda value: abs(math.log(_length_s(value) / _length_s(first))))
        others = others[:8]
    rng.shuffle(others)
    taken = [first]
    limit = 9
    for value in others[: rng.randint(1, 4)]:
        if sum(len(entry.cell.jobs) for entry in taken) + len(value.cell.jobs) <= limit:
            taken.append(value)
    return taken


def _length_s(value: Value) -> float:
    return sum(job.mean_s for job in value.cell.jobs) / len(value.cell.jobs)


def _rebuild(sizing: Sizing, jobs: Sequence[Workload], kept: Sequence[Value]) -> list[Value]:
    """Insert the jobs one by one into what is kept or into new cells, where it costs least."""
    order = list(jobs)
    sizing.rng.shuffle(order)
    if sizing.rng.random() < 0.5:
        order.sort(key=lambda job: -job.mean_s)
    cells = list(kept)
    for job in order:
        alone = _alone(sizing.market, job)
        options: list[tuple[float, int, Value]] = [(alone.reduced(sizing.theta), -1, alone)]
        for place, value in enumerate(cells):
            if len(value.cell.jobs) == sizing.effort.max_cell_jobs:
                continue
            before = value.reduced(sizing.theta)
            cutoff = min(option[0] for option in options) + before
            grown = sizing.best([*value.cell.jobs, job], cutoff)
            if grown is not None:
                options.append((grown.reduced(sizing.theta) - before, place, grown))
        _, place, chosen = min(options, key=lambda option: option[:2])
        if place < 0:
            cells.append(chosen)
        else:
            cells[place] = chosen
    return cells


def _options(market: Market, jobs: Sequence[Workload]) -> Iterable[Option]:
    """Cells for these jobs that keep the necessary conditions."""
    most = len(jobs) if market.arrangement is Arrangement.SPLIT else 1
    for num_train in range(1, most + 1):
        for num_rollout in range(1, most + 1):
            cell = make_cell(market, jobs, num_rollout=num_rollout, num_train=num_train)
            if not cell.fits() or cell.price >= market.dedicated_price * len(jobs):
                continue
            work = most_work(cell)
            if work is not None:
                yield Option(cell, work)


def most_work(cell: Cell) -> float | None:
    """Work that no schedule of the cell exceeds; None if no schedule keeps the limits.

    Per role, each group's time goes to the jobs that need least of it for their work, once every
    job has what its limit demands.
    """
    least = len(cell.jobs) * 1.0
    lanes: list[tuple[tuple[str, ...], tuple[Role, ...]]] = [
        (cell.train_groups, (Role.TRAIN,)),
        (cell.rollout_groups, (Role.ROLLOUT,)),
    ]
    if cell.market.arrangement is Arrangement.COLOCATED:
        lanes = [(cell.train_groups, (Role.TRAIN, Role.ROLLOUT))]
    for seats, roles in lanes:
        work = 0.0
        for group in set(seats):
            here = [job for job, seat in zip(cell.jobs, seats, strict=True) if seat == group]
            if not group:
                work += len(here)
                continue
            done = _group_work(here, roles, cell.market.staleness)
            if done is None:
                return None
            work += done
        least = min(least, work)
    return least


def _group_work(jobs: Sequence[Workload], roles: Sequence[Role], staleness: int) -> float | None:
    shares = [(_share(job, roles, staleness), 1 / job.slowdown_limit) for job in jobs]
    free = 1 - sum(share * least for share, least in shares)
    if free < 0:
        return None
    work = sum(least for _, least in shares)
    for share, least in sorted(shares):
        more = min(1 - least, free / share)
        work += more
        free -= more * share
    return work


def _share(job: Workload, roles: Sequence[Role], staleness: int) -> float:
    """Share of the group's time the job takes at full speed."""
    period_s = job.mean_s
    if staleness:
        train_s = job.role_s(Role.TRAIN)
        # Noise makes the longer of two parts longer than either mean: by less than a fifth.
        period_s = min(1.2 * max(train_s, period_s - train_s), period_s)
    return sum(job.role_s(role) for role in roles) / period_s
