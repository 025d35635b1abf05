"""What a cell is worth: necessary conditions, the quick look, and the arbiter's word.

Cells are screened by necessary conditions and valued by `solver.queueing` on planning seeds; those
of an answer are confirmed by the simulator of the very arbiter and rule that run.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from solver.arrangements import Arrangement, Cell, Market, has_room, make_cell
from solver.queueing import Turn, queue_ends
from solver.scoring import Dispatch, alone_ticks, horizon_s, score_cell, tolerances
from solver.workloads import Role, Workload

SCREEN_SHARE = 0.2
"""Share of the time of a valuation after which most cells can be told to be worth too little."""
SCREEN_LEEWAY = 0.25
"""Share by which slowdowns may still exceed their limits by then."""
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
    max_rounds: int = 16
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
        slack = SCREEN_SLACK * market.dedicated_price * len(self.jobs)
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

    def best(self, jobs: Sequence[Workload], cutoff: float) -> Value | None:
        """The best cell for exactly these jobs; None if none is reduced below the cutoff.

        Cells are valued in the order of what they could be worth at most, and only as far as one
        may still be the best.
        """
        key = frozenset(job.name for job in jobs)
        if key not in self.shapes:
            ordered = tuple(sorted(jobs, key=lambda job: job.name))
            self.shapes[key] = tuple(options(self.market, ordered))
        theta, found = self.theta, None
        for option in sorted(self.shapes[key], key=lambda o: o.least(theta)):
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
    until_s = horizon_s(cell, effort.cycles)
    mean = dict.fromkeys((job.name for job in cell.jobs), 0.0)
    for seed in effort.seeds:
        compiled = cell.compile(seed, until_s)
        found = queue_ends(
            compiled,
            share * until_s,
            turn=effort.turn,
            is_kept=effort.is_kept,
            tolerances=tolerances(cell.jobs),
        )
        for job, ends in zip(compiled, found, strict=True):
            if not ends:
                return None
            alone = alone_ticks(job, cell.market)[len(ends) - 1]
            mean[job.name] += ends[-1] / alone / len(effort.seeds)
    most = (1 - effort.margin) * (1 + leeway)
    limits = {job.name: job.slowdown_limit * most for job in cell.jobs}
    if any(mean[name] > limit for name, limit in limits.items()) and len(cell.jobs) > 1:
        return None
    return Value(cell, sum(1 / max(slowdown, 1.0) for slowdown in mean.values()))


def alone(market: Market, job: Workload) -> Value:
    """A job on groups of its own."""
    return Value(make_cell(market, [job]), 1.0)


def holds_quickly(cell: Cell, effort: Effort) -> bool:
    """Whether every job keeps its limit, with half the margin, by longer quick looks."""
    longer = replace(effort, cycles=effort.sound_cycles, margin=effort.margin / 2)
    return all(
        appraise(cell, replace(longer, seeds=(seed,))) is not None for seed in effort.sound_seeds
    )


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
    """Numbers of groups for exactly these jobs that keep the necessary conditions."""
    train_roles: tuple[Role, ...] = (Role.TRAIN,)
    most, rollouts = 1, [float(len(jobs))]
    match market.arrangement:
        case Arrangement.COLOCATED:
            train_roles = (Role.TRAIN, Role.ROLLOUT)
        case Arrangement.SPLIT:
            most = len(jobs)
            rollouts = _works(market, jobs, (Role.ROLLOUT,), most)
    trains = _works(market, jobs, train_roles, most)
    for num_train, train_work in enumerate(trains, start=1):
        for num_rollout, rollout_work in enumerate(rollouts, start=1):
            price = market.price(len(jobs), num_rollout, num_train)
            work = min(train_work, rollout_work)
            if work > 0 and price < market.dedicated_price * len(jobs):
                yield Option(jobs, num_rollout, num_train, price, work)


def _works(
    market: Market, jobs: Sequence[Workload], roles: Sequence[Role], most: int
) -> list[float]:
    """Per number of groups from 1 the work that no schedule exceeds; 0 where none is possible."""
    shares = [(_share(job, roles, market.staleness), 1 / job.slowdown_limit) for job in jobs]
    role = Role.TRAIN if Role.TRAIN in roles else Role.ROLLOUT
    return [
        (most_work(shares, count) or 0.0) if has_room(market, jobs, role, count) else 0.0
        for count in range(1, most + 1)
    ]


def most_work(shares: Iterable[tuple[float, float]], num_groups: int) -> float | None:
    """Work that no schedule exceeds on so many groups; None if no schedule keeps the limits.

    The time goes to the jobs that need least of it for their work, once every job has what its
    limit demands.

    Parameters
    ----------
    shares
        Per job the share of one group's time it takes at full speed, and the least speed that its
        limit allows.
    num_groups
        Groups of one kind; each job uses one at a time.
    """
    ordered = sorted(shares)
    free = num_groups - sum(share * least for share, least in ordered)
    if free < 0:
        return None
    work = sum(least for _, least in ordered)
    for share, least in ordered:
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
