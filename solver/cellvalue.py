"""What a cell is worth: necessary conditions, the quick look, and the arbiter's word.

Cells are screened by necessary conditions and valued by `solver.queueing` on planning seeds; those
of an answer are confirmed by the simulator of the very arbiter and rule that run.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from solver.arrangements import Arrangement, Cell, Market, has_room, least_groups, make_cell
from solver.dispatch.rules import FirstReady
from solver.dispatch.shortest import ShortestFirst
from solver.dispatch.views import Rule
from solver.errors import ProblemError
from solver.queueing import Turn, queue_ends
from solver.scoring import Dispatch, alone_ticks, horizon_s, is_even, score_cell, tolerances
from solver.simulate import SimJob, simulate
from solver.workloads import Role, Workload

SCREEN_SHARE = 0.2
"""Share of the time of a valuation after which most cells can be told to be worth too little."""
SCREEN_LEEWAY = 0.25
"""Share by which slowdowns may still exceed their limits by then."""
LOOK_S = 1e-5
"""Seconds that a lease takes in a quick look."""
CONFIRM_S = 1e-4
"""The same under the arbiter."""
SCREEN_SLACK = 0.03
"""Share of the jobs' own price by which what a cell is worth may still change after that."""


@dataclass(frozen=True, slots=True)
class Effort:
    """How hard to search; the same effort and seed give the same answer."""

    steps: int = 60
    """Rounds of generation: in each the prices of jobs are found anew, and sets of jobs tried."""
    cycles: int = 20
    """Iterations of the slowest job that value a cell."""
    margin: float = 0.01
    """Share of a slowdown limit kept free for draws that the planner does not see."""
    seeds: tuple[int, ...] = (10_000,)
    """Noise seeds that value a cell."""
    confirm_seeds: tuple[int, ...] = (10_001, 10_002)
    """Noise seeds that confirm a cell."""
    sound_seeds: tuple[int, ...] = (10_001, 10_002, 10_003)
    """Noise seeds of the longer quick looks before that."""
    sound_cycles: int = 60
    """Iterations of the slowest job in those."""
    confirm_cycles: int = 40
    """Iterations of the slowest job that confirm a cell."""
    turn: Turn = Turn.FIRST_READY
    """Rule that cells are valued by."""
    is_kept: bool = False
    """Value cells as if jobs keep their group between ops without a wait."""
    is_by_price: bool = False
    """Minimise the price per second alone: a slowdown within its limit counts for nothing."""
    max_cell_jobs: int = 8
    """Most jobs of one cell, over all its groups."""
    num_exchanges: int = 4_000
    """Exchanges of jobs between chosen cells that are tried at most."""
    max_rounds: int = 16
    """Confirmations at most."""


@dataclass(frozen=True, slots=True)
class Value:
    """What a cell is worth to the search."""

    cell: Cell
    work: float
    """Sum of weight ÷ slowdown over its jobs: what it does per second, in seconds alone."""

    def reduced(self, theta: float) -> float:
        """Price above what its work is worth."""
        return self.cell.price - theta * self.work


@dataclass(slots=True, eq=False)
class Option:
    """A number of groups that may serve some jobs, as far as necessary conditions tell."""

    jobs: tuple[Workload, ...]
    num_rollout: int
    num_train: int
    price: float
    """Per second, of its groups."""
    most_work: float
    """No schedule does more work."""
    _value: Value | None = None
    _is_valued: bool = False
    _glimpse: Value | None = None
    _is_glimpsed: bool = False

    def least(self, theta: float) -> float:
        """No schedule is worth less than this above its price."""
        return self.price - theta * self.most_work

    def promises(self, market: Market, effort: Effort, theta: float, cutoff: float) -> bool:
        """Whether the beginning of a look does not yet rule out that it is below the cutoff."""
        if self._is_valued:
            return True
        if not self._is_glimpsed:
            self._is_glimpsed = True
            cell = self._cell(market)
            if cell.fits():
                self._glimpse = appraise(cell, effort, SCREEN_SHARE, SCREEN_LEEWAY)
        slack = SCREEN_SLACK * sum(map(market.worth, self.jobs))
        return self._glimpse is not None and self._glimpse.reduced(theta) < cutoff + slack

    def value(self, market: Market, effort: Effort) -> Value | None:
        """Its value, found when it is first asked for; None if a job exceeds its limit."""
        if not self._is_valued:
            self._is_valued = True
            cell = self._cell(market)
            self._value = appraise(cell, effort) if cell.fits() else None
        return self._value

    def _cell(self, market: Market) -> Cell:
        return make_cell(market, self.jobs, num_rollout=self.num_rollout, num_train=self.num_train)


@dataclass(slots=True, eq=False)
class Sizing:
    """A search under way: the cells in use, and everything learned about others."""

    market: Market
    effort: Effort
    theta: float
    """Price that a unit of work is worth."""
    shapes: dict[frozenset[str], tuple[Option, ...]] = field(default_factory=dict)
    banned: set[Shape] = field(default_factory=set)
    """Cells that failed the confirmation."""

    def least(self, jobs: Sequence[Workload]) -> float:
        """No cell for exactly these jobs is reduced below this; infinite if there is none."""
        return min((option.least(self.theta) for option in self._options(jobs)), default=math.inf)

    def _options(self, jobs: Sequence[Workload]) -> tuple[Option, ...]:
        key = frozenset(job.name for job in jobs)
        if key not in self.shapes:
            ordered = tuple(sorted(jobs, key=lambda job: job.name))
            self.shapes[key] = tuple(options(self.market, ordered))
        return self.shapes[key]

    def best(self, jobs: Sequence[Workload], cutoff: float) -> Value | None:
        """The best cell for exactly these jobs; None if none is reduced below the cutoff.

        Cells are valued in the order of what they could be worth at most, and only as far as one
        may still be the best.
        """
        key = frozenset(job.name for job in jobs)
        theta, found = self.theta, None
        for option in sorted(self._options(jobs), key=lambda o: o.least(theta)):
            if option.least(theta) >= cutoff:
                break
            if (key, option.num_rollout, option.num_train) in self.banned:
                continue
            if not option.promises(self.market, self.effort, theta, cutoff):
                continue
            value = option.value(self.market, self.effort)
            if value is not None and value.reduced(theta) < cutoff:
                found, cutoff = value, value.reduced(theta)
        return found


Shape = tuple[frozenset[str], int, int]
"""Jobs, number of rollout groups and of train groups of a cell."""


def shape(cell: Cell) -> Shape:
    """What tells a cell from others."""
    is_split = cell.market.arrangement is Arrangement.SPLIT
    return frozenset(j.name for j in cell.jobs), cell.num_rollout if is_split else 1, cell.num_train


def appraise(cell: Cell, effort: Effort, share: float = 1.0, leeway: float = 0.0) -> Value | None:
    """Work of a cell by the quick look; None if a job exceeds its limit less the margin.

    Parameters
    ----------
    cell
        The cell.
    effort
        How long and under which draws to look.
    share
        Share of that time to look.
    leeway
        Share by which slowdowns may exceed what they otherwise may.
    """
    found = slowdowns(cell, effort, share)
    most = (1 - effort.margin) * (1 + leeway)
    if found is None or (
        len(cell.jobs) > 1
        and any(s > job.slowdown_limit * most for s, job in zip(found, cell.jobs, strict=True))
    ):
        return None
    return Value(cell, work_of(cell, found))


def work_of(cell: Cell, slowdowns: Iterable[float]) -> float:
    """What the jobs of a cell do per second at these slowdowns, in seconds alone."""
    pairs = zip(cell.jobs, slowdowns, strict=True)
    return sum(cell.market.weight(job) / max(slowdown, 1.0) for job, slowdown in pairs)


def slowdowns(cell: Cell, effort: Effort, share: float = 1.0) -> list[float] | None:
    """Mean slowdown of each job by the quick look.

    None if one ends no iteration in the time, or jobs differ too much in length to tell.
    """
    if not is_even(cell):
        return None
    until_s = horizon_s(cell, effort.cycles)
    mean = [0.0] * len(cell.jobs)
    for seed in effort.seeds:
        compiled = cell.compile(seed, until_s)
        found = _ends(cell, compiled, effort, share * until_s, seed)
        for index, (job, ends) in enumerate(zip(compiled, found, strict=True)):
            if not ends:
                return None
            alone = alone_ticks(job, cell.market)[len(ends) - 1]
            mean[index] += ends[-1] / alone / len(effort.seeds)
    return mean


def _ends(
    cell: Cell, compiled: Sequence[SimJob], effort: Effort, until_s: float, seed: int
) -> Sequence[Sequence[int]]:
    """Ticks at which the iterations of each job end; of gangs only the simulator knows them."""
    lags = tolerances(cell.jobs)
    if not any(len(op.groups) > 1 and not op.is_any for job in compiled for op in job.ops):
        return queue_ends(
            compiled,
            until_s,
            turn=effort.turn,
            is_kept=effort.is_kept,
            tolerances=list(lags.values()),
        )
    rule: Rule = FirstReady()
    if effort.turn is not Turn.FIRST_READY:
        rule = ShortestFirst(lags)
    try:
        done = simulate(compiled, None, rule, seed=seed, until_s=until_s)
    except ProblemError:
        # Somebody ended no iteration in the time.
        return [()] * len(compiled)
    return [done.ends_ticks[job.name] for job in compiled]


def alone(market: Market, job: Workload) -> Value:
    """A job on groups of its own."""
    return Value(make_cell(market, [job]), market.weight(job))


def num_leases(cell: Cell, cycles: int) -> float:
    """Leases in as many iterations of the slowest job, about."""
    until_s = horizon_s(cell, cycles)
    return sum(until_s / job.mean_s * len(job.phases) for job in cell.jobs)


def looking_s(cell: Cell, effort: Effort) -> float:
    """About what `look_longer` takes."""
    return LOOK_S * len(effort.sound_seeds) * num_leases(cell, effort.sound_cycles)


def confirming_s(cell: Cell, effort: Effort) -> float:
    """About what `holds` takes."""
    return CONFIRM_S * len(effort.confirm_seeds) * num_leases(cell, effort.confirm_cycles)


def look_longer(cell: Cell, effort: Effort) -> Value | None:
    """Work of a cell by longer quick looks; None if a job exceeds its limit less half the margin.

    Sets are found because they look good under the draws that value them: under these a few look
    worse.
    """
    longer = replace(effort, cycles=effort.sound_cycles, margin=effort.margin / 2)
    work = 0.0
    for seed in effort.sound_seeds:
        value = appraise(cell, replace(longer, seeds=(seed,)))
        if value is None:
            return None
        work += value.work / len(effort.sound_seeds)
    return Value(cell, work)


def holds(cell: Cell, dispatch: Dispatch, effort: Effort) -> bool:
    """Whether every job keeps its limit, with half the margin, under the arbiter itself."""
    scores = (
        score_cell(cell, dispatch, seed, cycles=effort.confirm_cycles)
        for seed in effort.confirm_seeds
    )
    return all(
        score.slowdowns[job.name] <= job.slowdown_limit * (1 - effort.margin / 2)
        for score in scores
        for job in cell.jobs
    )


def options(market: Market, jobs: tuple[Workload, ...]) -> Iterator[Option]:
    """Numbers of groups for exactly these jobs that keep the necessary conditions.

    Jobs that must not share a group are in no cell together, even where it has several.
    """
    if market.separates(jobs):
        return
    train_roles: tuple[Role, ...] = (Role.TRAIN,)
    most, rollouts = least_groups(jobs, Role.TRAIN), [sum(map(market.weight, jobs))]
    match market.arrangement:
        case Arrangement.COLOCATED:
            train_roles = (Role.TRAIN, Role.ROLLOUT)
        case Arrangement.SPLIT:
            most = sum(job.train_width for job in jobs)
            widths = sum(job.rollout_width for job in jobs)
            rollouts = _works(market, jobs, (Role.ROLLOUT,), widths)
    trains = _works(market, jobs, train_roles, most)
    for num_train, train_work in enumerate(trains, start=1):
        for num_rollout, rollout_work in enumerate(rollouts, start=1):
            price = market.price(jobs, num_rollout, num_train)
            work = min(train_work, rollout_work)
            if work > 0 and price < sum(map(market.own_price, jobs)):
                yield Option(jobs, num_rollout, num_train, price, work)


def _works(
    market: Market, jobs: Sequence[Workload], roles: Sequence[Role], most: int
) -> list[float]:
    """Per number of groups from 1 the work that no schedule exceeds; 0 where none is possible."""
    role, shares = _shared(roles), demands(market, jobs, roles)
    return [
        (most_work(shares, count) or 0.0) if has_room(market, jobs, role, count) else 0.0
        for count in range(1, most + 1)
    ]


def _shared(roles: Sequence[Role]) -> Role:
    """The role whose groups serve all of these."""
    return Role.TRAIN if Role.TRAIN in roles else Role.ROLLOUT


def demands(market: Market, jobs: Iterable[Workload], roles: Sequence[Role]) -> list[Demand]:
    """What each job asks of the groups that serve some roles."""
    role = _shared(roles)
    return [
        Demand(
            job.width(role) * _share(job, roles, market.staleness),
            1 / job.slowdown_limit,
            market.weight(job),
        )
        for job in jobs
    ]


@dataclass(frozen=True, slots=True)
class Demand:
    """What a job asks of some groups."""

    share: float
    """Time of one group that it takes at full speed."""
    least: float
    """The least speed that its limit allows."""
    weight: float = 1.0
    """Work it does at full speed."""


def most_work(demands: Iterable[Demand], num_groups: int) -> float | None:
    """Work that no schedule exceeds on so many groups; None if no schedule keeps the limits.

    The time goes to the jobs that need least of it for their work, once every job has what its
    limit demands.

    Parameters
    ----------
    demands
        Of each job.
    num_groups
        Groups of one kind.
    """
    ordered = sorted(demands, key=lambda demand: demand.share / demand.weight)
    free = num_groups - sum(demand.share * demand.least for demand in ordered)
    if free < 0:
        return None
    work = sum(demand.weight * demand.least for demand in ordered)
    for demand in ordered:
        more = min(1 - demand.least, free / demand.share)
        work += demand.weight * more
        free -= more * demand.share
    return work


def _share(job: Workload, roles: Sequence[Role], staleness: int) -> float:
    """Share of the group's time the job takes at full speed."""
    period_s = job.mean_s
    if staleness:
        train_s = job.role_s(Role.TRAIN)
        # Noise makes the longer of two parts longer than either mean: by less than a fifth.
        period_s = min(1.2 * max(train_s, period_s - train_s), period_s)
    return sum(job.role_s(role) for role in roles) / period_s
