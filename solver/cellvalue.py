"""What a cell is worth: necessary conditions, the quick look, and the arbiter's word.

Cells are screened by necessary conditions and valued by `solver.queueing` on planning seeds; those
of an answer are confirmed by the simulator of the very arbiter and rule that run.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

from solver.arrangements import (
    Arrangement,
    Cell,
    Market,
    groups_for_room,
    least_groups,
    make_cell,
)
from solver.dispatch.rules import FirstReady
from solver.dispatch.shortest import ShortestFirst
from solver.dispatch.views import Rule
from solver.errors import ProblemError
from solver.queueing import Turn, queue_ends
from solver.queueing_many import Meeting, is_plain, queue_ends_many
from solver.scoring import Dispatch, alone_ticks, horizon_s, is_even, score_cell, tolerances
from solver.simulate import SimJob, simulate
from solver.workloads import Role, Workload

SCREEN_SHARE = 0.2
"""Share of the time of a valuation after which most cells can be told to be worth too little."""
SCREEN_LEEWAY = 0.25
"""Share by which slowdowns may still exceed their limits by then."""
LOOK_S = 1e-5
"""Seconds that a lease takes in a quick look, draws included."""
LEAST_TOGETHER = 150
"""Cells from which on to look at all of them in step is faster than at one after the other."""
CONFIRM_S = 1e-4
"""The same under the arbiter."""
REACH = 0.98
"""Share of the work that no schedule exceeds that hardly any cell reaches: what varies and has to
be switched leaves gaps."""
SCREEN_SLACK = 0.03
"""Share of the jobs' own price by which what a cell is worth may still change after that."""


@dataclass(frozen=True, slots=True)
class Effort:
    """How hard to search; the same effort and seed give the same answer."""

    steps: int = 60
    """Rounds of generation: in each the prices of jobs are found anew, and sets of jobs tried."""
    cycles: int = 20
    """Iterations of the slowest job that value a cell."""
    margin: float = 0.005
    """Share of a slowdown limit kept free for draws that the planner does not see."""
    seeds: tuple[int, ...] = (10_000,)
    """Noise seeds that value a cell."""
    confirm_seeds: tuple[int, ...] = (10_001, 10_002)
    """Noise seeds that confirm a cell."""
    sound_seeds: tuple[int, ...] = (10_001, 10_002, 10_003, 10_004)
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
    num_regions: int = 100
    """Times at most that a few of the chosen cells are planned anew."""
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
    seen: dict[float, Value | None] = field(default_factory=dict)
    """Share of the time it was looked at → its value then; None if a job exceeded its limit."""
    _cell: Cell | None = None

    def value(self, market: Market, effort: Effort) -> Value | None:
        """Its value, found when it is first asked for; None if a job exceeds its limit."""
        look_at([self], market, effort)
        return self.seen[1.0]

    def cell(self, market: Market) -> Cell:
        """The jobs on these groups."""
        if self._cell is None:
            self._cell = make_cell(
                market, self.jobs, num_rollout=self.num_rollout, num_train=self.num_train
            )
        return self._cell


def look_at(options: Iterable[Option], market: Market, effort: Effort, share: float = 1.0) -> None:
    """Value options that were not yet looked at so long, all together.

    Parameters
    ----------
    options
        The options; what is seen of them is kept with each.
    market
        Arrangement and prices.
    effort
        How long and under which draws to look.
    share
        Share of that time; less than all forgives more.
    """
    new = [option for option in options if share not in option.seen]
    fitting = [option for option in new if option.cell(market).fits()]
    leeway = SCREEN_LEEWAY if share < 1 else 0.0
    values = appraise_each([option.cell(market) for option in fitting], effort, share, leeway)
    for option in new:
        option.seen[share] = None
    for option, value in zip(fitting, values, strict=True):
        option.seen[share] = value


@dataclass(slots=True, eq=False)
class Sizing:
    """A search under way: the cells in use, and everything learned about others."""

    market: Market
    effort: Effort
    theta: float
    """Price that a unit of work is worth."""
    shapes: dict[frozenset[str], tuple[Option, ...]] = field(default_factory=dict)
    banned: dict[frozenset[str], set[Shape]] = field(default_factory=dict)
    """Jobs → cells for them that failed the confirmation."""

    def ban(self, cell: Cell) -> None:
        """Use a cell never again."""
        self.banned.setdefault(shape(cell)[0], set()).add(shape(cell))

    def _options(self, jobs: Sequence[Workload]) -> tuple[Option, ...]:
        key = frozenset(job.name for job in jobs)
        if key not in self.shapes:
            ordered = tuple(sorted(jobs, key=lambda job: job.name))
            self.shapes[key] = tuple(options(self.market, ordered))
        return self.shapes[key]

    def best(self, jobs: Sequence[Workload], cutoff: float) -> Value | None:
        """The best cell for exactly these jobs; None if none is reduced below the cutoff."""
        return self.best_each([(jobs, cutoff)])[0]

    def best_each(self, asked: Sequence[tuple[Sequence[Workload], float]]) -> list[Value | None]:
        """The same for several sets of jobs, each with its cutoff, looked at together.

        A glimpse tells which cells may be the best; of a set's the one that seems best comes first,
        others only if they may still be better.
        """
        cutoffs = [cutoff for _, cutoff in asked]
        options = [self._in_question(jobs, cutoff) for jobs, cutoff in asked]
        look_at(chain.from_iterable(options), self.market, self.effort, SCREEN_SHARE)
        found: list[Value | None] = [None] * len(asked)
        for place in range(2):
            seeming = [self._promising(*pair) for pair in zip(options, cutoffs, strict=True)]
            seeming = [row[:1] if place == 0 else row for row in seeming]
            look_at(chain.from_iterable(seeming), self.market, self.effort)
            for at, row in enumerate(seeming):
                for option in row:
                    value = option.seen[1.0]
                    if value is not None and value.reduced(self.theta) < cutoffs[at]:
                        found[at], cutoffs[at] = value, value.reduced(self.theta)
        return found

    def _in_question(self, jobs: Sequence[Workload], cutoff: float) -> list[Option]:
        """Cells for these jobs that may be below a cutoff, as far as is known without a look."""
        banned = self.banned.get(frozenset(job.name for job in jobs), ())
        return [
            option
            for option in self._options(jobs)
            if option.price - self.theta * REACH * option.most_work < cutoff
            # Pins may leave a cell fewer groups than were asked for.
            and not (banned and shape(option.cell(self.market)) in banned)
        ]

    def _promising(self, options: Sequence[Option], cutoff: float) -> list[Option]:
        """Those that a glimpse did not rule out to be below a cutoff, what seems best first."""
        seen = [(option, option.seen[SCREEN_SHARE]) for option in options if 1.0 not in option.seen]
        known = [option for option in options if option.seen.get(1.0) is not None]
        slack = SCREEN_SLACK * sum(map(self.market.worth, options[0].jobs)) if options else 0.0
        seems = [(v.reduced(self.theta), n) for n, (_, v) in enumerate(seen) if v is not None]
        return known + [seen[n][0] for reduced, n in sorted(seems) if reduced < cutoff + slack]

    def forget(self, jobs: Sequence[Workload]) -> None:
        """Keep nothing of a set of jobs that is of no use."""
        self.shapes.pop(frozenset(job.name for job in jobs), None)


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
    return appraise_each([cell], effort, share, leeway)[0]


def appraise_each(
    cells: Sequence[Cell], effort: Effort, share: float = 1.0, leeway: float = 0.0
) -> list[Value | None]:
    """The same for several cells, looked at together."""
    most = (1 - effort.margin) * (1 + leeway)
    return [
        _value(cell, found, most)
        for cell, found in zip(cells, slowdowns_each(cells, effort, share), strict=True)
    ]


def _value(cell: Cell, slowdowns: Sequence[float] | None, most: float) -> Value | None:
    """What a cell is worth whose jobs are so slow; None if one exceeds that share of its limit."""
    if slowdowns is None or (
        len(cell.jobs) > 1
        and any(s > job.slowdown_limit * most for s, job in zip(slowdowns, cell.jobs, strict=True))
    ):
        return None
    return Value(cell, work_of(cell, slowdowns))


def work_of(cell: Cell, slowdowns: Iterable[float]) -> float:
    """What the jobs of a cell do per second at these slowdowns, in seconds alone."""
    pairs = zip(cell.jobs, slowdowns, strict=True)
    return sum(cell.market.weight(job) / max(slowdown, 1.0) for job, slowdown in pairs)


def slowdowns_each(
    cells: Sequence[Cell], effort: Effort, share: float = 1.0
) -> list[list[float] | None]:
    """Mean slowdown of each job of each cell by the quick look, at all of them together.

    None for a cell where a job ends no iteration in the time, or whose jobs differ too much in
    length to tell.
    """
    return [_mean(found) for found in _looks(cells, effort, share)]


def _mean(found: Sequence[Sequence[float] | None]) -> list[float] | None:
    rows = [row for row in found if row is not None]
    if not rows or len(rows) < len(found):
        return None
    return [sum(column) / len(rows) for column in zip(*rows, strict=True)]


def _looks(
    cells: Sequence[Cell], effort: Effort, share: float = 1.0
) -> list[list[list[float] | None]]:
    """Per cell and seed the slowdown of each job; None if one cannot be told.

    Nothing for cells whose jobs differ too much in length.
    """
    going = [at for at, cell in enumerate(cells) if is_even(cell)]
    asked, meetings = [], []
    for at in going:
        cell = cells[at]
        until_s, lags = horizon_s(cell, effort.cycles), tuple(tolerances(cell.jobs).values())
        for seed in effort.seeds:
            asked.append((at, seed))
            meetings.append(Meeting(cell.compile(seed, until_s), share * until_s, lags))
    found: list[list[list[float] | None]] = [[] for _ in cells]
    ends = _ends(meetings, effort, [seed for _, seed in asked])
    for (at, _), meeting, row in zip(asked, meetings, ends, strict=True):
        found[at].append(_ratios(cells[at].market, meeting.jobs, row))
    return found


def _ratios(
    market: Market, jobs: Sequence[SimJob], ends: Sequence[tuple[int, int]]
) -> list[float] | None:
    """Time of each job ÷ the same alone; None if one ended no iteration."""
    if any(count == 0 for count, _ in ends):
        return None
    return [
        last / alone_ticks(job, market)[count - 1]
        for job, (count, last) in zip(jobs, ends, strict=True)
    ]


def _ends(
    meetings: Sequence[Meeting], effort: Effort, seeds: Sequence[int]
) -> list[list[tuple[int, int]]]:
    """Per cell and job how many iterations it ends, and when the last one."""
    together = [at for at, meeting in enumerate(meetings) if is_plain(meeting.jobs)]
    if len(together) < LEAST_TOGETHER:
        together = []
    many = queue_ends_many(
        [meetings[at] for at in together], turn=effort.turn, is_kept=effort.is_kept
    )
    found = dict(zip(together, many, strict=True))
    for at, (meeting, seed) in enumerate(zip(meetings, seeds, strict=True)):
        if at not in found:
            rows = _ends_of_one(meeting, effort, seed)
            found[at] = [(len(row), row[-1] if row else 0) for row in rows]
    return [found[at] for at in range(len(meetings))]


def _ends_of_one(meeting: Meeting, effort: Effort, seed: int) -> Sequence[Sequence[int]]:
    """Ticks at which the iterations of each job end; of gangs only the simulator knows them."""
    jobs, until_s = meeting.jobs, meeting.horizon_s
    if not any(len(op.groups) > 1 and not op.is_any for job in jobs for op in job.ops):
        return queue_ends(
            jobs,
            until_s,
            turn=effort.turn,
            is_kept=effort.is_kept,
            tolerances=meeting.tolerances,
        )
    rule: Rule = FirstReady()
    if effort.turn is not Turn.FIRST_READY:
        names = [job.name for job in jobs]
        rule = ShortestFirst(dict(zip(names, meeting.tolerances, strict=True)))
    try:
        done = simulate(jobs, None, rule, seed=seed, until_s=until_s)
    except ProblemError:
        # Somebody ended no iteration in the time.
        return [()] * len(jobs)
    return [done.ends_ticks[job.name] for job in jobs]


def alone(market: Market, job: Workload) -> Value:
    """A job on groups of its own."""
    return Value(make_cell(market, [job]), market.weight(job))


def num_leases(cell: Cell, cycles: int) -> float:
    """Leases in as many iterations of the slowest job, about."""
    until_s = horizon_s(cell, cycles)
    return sum(until_s / job.mean_s * len(job.phases) for job in cell.jobs)


def looking_s(cell: Cell, effort: Effort) -> float:
    """About what `look_longer` takes."""
    is_wide = any(job.rollout_width > 1 or job.train_width > 1 for job in cell.jobs)
    return (
        (CONFIRM_S if is_wide else LOOK_S)
        * len(effort.sound_seeds)
        * num_leases(cell, effort.sound_cycles)
    )


def confirming_s(cell: Cell, effort: Effort) -> float:
    """About what `holds` takes."""
    return CONFIRM_S * len(effort.confirm_seeds) * num_leases(cell, effort.confirm_cycles)


def look_longer(cell: Cell, effort: Effort) -> Value | None:
    """Work of a cell by longer quick looks; None if a job exceeds its limit less the margin.

    Sets are found because they look good under the draws that value them: under these a few look
    worse.
    """
    return look_longer_each([cell], effort)[0]


def look_longer_each(cells: Sequence[Cell], effort: Effort) -> list[Value | None]:
    """The same for several cells, looked at together."""
    longer = replace(effort, cycles=effort.sound_cycles, seeds=effort.sound_seeds)
    most = 1 - effort.margin
    found = []
    for cell, looks in zip(cells, _looks(cells, longer), strict=True):
        values = [value for row in looks if (value := _value(cell, row, most)) is not None]
        is_sound = bool(values) and len(values) == len(looks)
        work = sum(value.work for value in values) / max(len(values), 1)
        found.append(Value(cell, work) if is_sound else None)
    return found


def holds(cell: Cell, dispatch: Dispatch, effort: Effort) -> bool:
    """Whether every job keeps its limit, with the margin, under the arbiter itself."""
    scores = (
        score_cell(cell, dispatch, seed, cycles=effort.confirm_cycles)
        for seed in effort.confirm_seeds
    )
    return all(
        score.slowdowns[job.name] <= job.slowdown_limit * (1 - effort.margin)
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
    own_price = sum(map(market.own_price, jobs))
    beside = [market.rollout_cost(jobs, n) for n in range(1, len(rollouts) + 1)]
    for num_train, train_work in enumerate(trains, start=1):
        cost = market.train_cost(jobs, num_train)
        for num_rollout, rollout_work in enumerate(rollouts, start=1):
            price = cost + beside[num_rollout - 1]
            work = min(train_work, rollout_work)
            if work > 0 and price < own_price:
                yield Option(jobs, num_rollout, num_train, price, work)


def _works(
    market: Market, jobs: Sequence[Workload], roles: Sequence[Role], most: int
) -> list[float]:
    """Per number of groups from 1 the work that no schedule exceeds; 0 where none is possible."""
    role, shares = _shared(roles), demands(market, jobs, roles)
    least = groups_for_room(market, jobs, role)
    return [
        (most_work(shares, count) or 0.0) if count >= least else 0.0 for count in range(1, most + 1)
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
