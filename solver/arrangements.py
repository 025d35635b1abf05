"""Sharing arrangements: which groups the phases of jobs run on, and what those groups cost.

A *cell* is a closed set of groups and the jobs on them: nothing outside it meets them, so each is
planned, simulated and paid for by itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import lru_cache, partial
from itertools import combinations

from solver.errors import ProblemError
from solver.simulate import SimJob, SimOp, Tape
from solver.workloads import Role, Tail, Workload, draw

MEETING_TWICE = 0.5
"""What a job that one shares another group with counts beyond its load when seats are chosen."""
_CACHED_JOBS = 8192
"""Compiled jobs kept: searching meets the same job on the same seat again and again."""
_CACHED_TAPES = 1024
"""Tapes kept: those of as many jobs under one seed and horizon."""


class Arrangement(StrEnum):
    """Where the phases of a job run."""

    COLOCATED = "colocated"
    """All on one group."""
    SPLIT = "split"
    """Rollouts on a rollout group, the rest on a train group; both may be shared."""
    PRIVATE_ROLLOUT = "private_rollout"
    """Rollouts on groups of the job's own, the rest in a shared training pool."""


@dataclass(frozen=True, slots=True)
class Market:
    """What groups are there and what they cost; prices in any unit per second."""

    arrangement: Arrangement
    train_price: float
    """Of a train group (or pool); of the group itself where jobs are colocated."""
    rollout_price: float = 0.0
    """Of a rollout group, or of one job's private rollout groups; unused where colocated."""
    memory_bytes: int | None = None
    """Host memory of a shared group; None: it does not bind."""
    rollout_bytes: int | None = None
    """The same of a shared rollout group; None: as much."""
    max_jobs: int = 5
    """Most jobs on one shared group."""
    staleness: int = 0
    """Iterations by which rollouts may run ahead of training (0: synchronous)."""
    is_yielding: bool = False
    """Whether rollouts can give their group up in mid-sample and go on later."""
    max_seats: int = 1
    """Most shared groups of a kind that keep a copy of a job's state, each in its host memory:
    what the job runs there goes to whichever is free."""
    apart: frozenset[frozenset[str]] = frozenset()
    """Pairs of jobs, by name, that must not share a group."""

    @property
    def dedicated_price(self) -> float:
        """What the groups of its own cost of a job that holds one of each kind at once."""
        if self.arrangement is Arrangement.COLOCATED:
            return self.train_price
        return self.rollout_price + self.train_price

    def own_price(self, job: Workload) -> float:
        """What groups of its own for a job cost in this arrangement."""
        trains = job.train_width * self.train_price
        if self.arrangement is Arrangement.COLOCATED:
            return trains
        return trains + job.rollout_width * self.rollout_price

    def weight(self, job: Workload) -> float:
        """What the work of a job counts: as its own groups cost, beside those of narrow jobs.

        Times its importance.
        """
        return job.weight * self.own_price(job) / self.dedicated_price

    def worth(self, job: Workload) -> float:
        """Price that what is said about a job is measured by, however important its work is."""
        return self.own_price(job) * max(job.weight, 1.0)

    @property
    def shared(self) -> tuple[Role, ...]:
        """Roles whose groups jobs may share."""
        is_split = self.arrangement is Arrangement.SPLIT
        return (Role.TRAIN, Role.ROLLOUT) if is_split else (Role.TRAIN,)

    def separates(self, jobs: Iterable[Workload]) -> bool:
        """Whether some of the jobs must not share a group."""
        if not self.apart:
            return False
        names = {job.name for job in jobs}
        if len(names) ** 2 > len(self.apart):
            return any(pair <= names for pair in self.apart)
        return any(frozenset(pair) in self.apart for pair in combinations(names, 2))

    def memory_for(self, role: Role) -> int | None:
        """Host memory of a shared group of a role; None: it does not bind."""
        if role is Role.ROLLOUT and self.rollout_bytes is not None:
            return self.rollout_bytes
        return self.memory_bytes

    def price(self, jobs: Iterable[Workload], num_rollout: int, num_train: int) -> float:
        """What so many shared groups cost per second, with the private ones of the jobs."""
        here = tuple(jobs)
        return self.train_cost(here, num_train) + self.rollout_cost(here, num_rollout)

    def train_cost(self, jobs: Sequence[Workload], num_groups: int) -> float:
        """What so many shared train groups cost per second."""
        return num_groups * self.train_price + self._moving(jobs, Role.TRAIN, num_groups)

    def rollout_cost(self, jobs: Sequence[Workload], num_groups: int) -> float:
        """What so many shared rollout groups cost per second, or the private ones of the jobs."""
        match self.arrangement:
            case Arrangement.COLOCATED:
                return 0.0
            case Arrangement.SPLIT:
                moving = self._moving(jobs, Role.ROLLOUT, num_groups)
                return num_groups * self.rollout_price + moving
            case Arrangement.PRIVATE_ROLLOUT:
                return sum(job.rollout_width for job in jobs) * self.rollout_price

    def _moving(self, jobs: Sequence[Workload], role: Role, num_groups: int) -> float:
        """What moves to so many groups lose per second at least, as long as a plan is in force.

        That is, if the groups are those on which most jobs are already; who is new on one moves.
        """
        movable = [job for job in jobs if job.move_share and job.current.of(role)]
        if not movable:
            return 0.0
        staying: dict[str, float] = {}
        for job in movable:
            for group in job.current.of(role):
                staying[group] = staying.get(group, 0.0) + job.move_share
        kept = set(sorted(staying, key=lambda group: (-staying[group], group))[:num_groups])
        price = self.rollout_price if role is Role.ROLLOUT else self.train_price
        return price * sum(
            job.move_share for job in movable if kept.isdisjoint(job.current.of(role))
        )


Seats = tuple[str, ...]
"""Groups of one kind that keep a job's state."""


def balanced(market: Market, jobs: Sequence[Workload]) -> tuple[Workload, ...]:
    """The jobs with weights whose mean is 1, each job counted as its own groups cost.

    Then what sharing saves is 0 where every job has groups of its own.
    """
    own = sum(map(market.own_price, jobs))
    mean = sum(job.weight * market.own_price(job) for job in jobs) / own
    return tuple(replace(job, weight=job.weight / mean) for job in jobs)


def groups_for_room(market: Market, jobs: Iterable[Workload], role: Role) -> int:
    """Shared groups of a role that the states of the jobs take at least, taken together.

    A gang keeps as much on each of the groups that it holds at once. Jobs that are pinned to
    different groups need as many.
    """
    here = list(jobs)
    memory = market.memory_for(role)
    seats = sum(job.width(role) for job in here)
    needed = sum(job.width(role) * job.bytes_for(role) for job in here)
    # A group without memory has room for nothing; the number is then more than there can be.
    by_memory = 0 if memory is None or not needed else -(-needed // max(memory, 1))
    return max(least_groups(here, role), -(-seats // market.max_jobs), by_memory)


def least_groups(jobs: Iterable[Workload], role: Role) -> int:
    """Groups that jobs need at least: those the widest holds, and those they are pinned to."""
    widths, pins = [1], set[str]()
    for job in jobs:
        widths.append(job.width(role))
        pins.update(job.pinned.of(role))
    return max(*widths, len(pins))


@dataclass(frozen=True, slots=True)
class Cell:
    """Jobs, and the groups they share with nobody else."""

    market: Market
    jobs: tuple[Workload, ...]
    rollout_groups: tuple[Seats, ...]
    """Per job the groups any of which runs its rollouts; none where they hold no shared group."""
    train_groups: tuple[Seats, ...]
    """Per job the groups any of which trains it."""

    @property
    def num_rollout(self) -> int:
        """Number of shared rollout groups."""
        return len(set().union(*self.rollout_groups))

    @property
    def num_train(self) -> int:
        """Number of train groups."""
        return len(set().union(*self.train_groups))

    @property
    def price(self) -> float:
        """What its groups cost per second."""
        return self.market.price(self.jobs, self.num_rollout, self.num_train)

    def fits(self) -> bool:
        """Whether memory and the number of jobs per shared group hold."""
        shared = [(Role.TRAIN, self.train_groups)]
        if self.market.arrangement is Arrangement.SPLIT:
            shared.append((Role.ROLLOUT, self.rollout_groups))
        return all(self._fits(role, seats) for role, seats in shared)

    def _fits(self, role: Role, seats: Sequence[Seats]) -> bool:
        memory, sizes = self.market.memory_for(role), [job.bytes_for(role) for job in self.jobs]
        used: dict[str, int] = {}
        counts: dict[str, int] = {}
        for size, places in zip(sizes, seats, strict=True):
            for group in places:
                used[group] = used.get(group, 0) + size
                counts[group] = counts.get(group, 0) + 1
        return max(counts.values()) <= self.market.max_jobs and (
            memory is None or max(used.values()) <= memory
        )

    def compile(self, seed: int, horizon_s: float, tail: Tail = Tail.LOGNORMAL) -> list[SimJob]:
        """The jobs as the simulator takes them, with draws that outlast the horizon."""
        staleness, is_yielding = self.market.staleness, self.market.is_yielding
        seats = zip(self.jobs, self.rollout_groups, self.train_groups, strict=True)
        return [
            _compile(
                job,
                rollout,
                train,
                staleness,
                is_yielding,
                seed,
                _enough(job, horizon_s, staleness),
                tail,
            )
            for job, rollout, train in seats
        ]


def make_cell(
    market: Market, jobs: Sequence[Workload], *, num_rollout: int = 1, num_train: int = 1
) -> Cell:
    """Seat jobs on that many rollout and train groups, longest first on the least loaded.

    There are at least as many groups as the widest gang holds at once, and as jobs are pinned to.

    Raises
    ------
    ProblemError
        No job, or fewer than one group.
    """
    if not jobs or min(num_rollout, num_train) < 1:
        raise ProblemError(
            f"a cell of {len(jobs)} jobs, {num_rollout} rollout and {num_train} train groups makes "
            "no sense; give at least one of each"
        )
    num_rollout = max(num_rollout, least_groups(jobs, Role.ROLLOUT))
    num_train = max(num_train, least_groups(jobs, Role.TRAIN))
    rollouts: tuple[Seats, ...] = ((),) * len(jobs)
    if market.arrangement is Arrangement.SPLIT:
        loads = [job.role_s(Role.ROLLOUT) for job in jobs]
        rollouts = _seats(market, jobs, Role.ROLLOUT, loads, num_rollout, rollouts)
    loads = [_train_load(market, job) for job in jobs]
    trains = _seats(market, jobs, Role.TRAIN, loads, num_train, rollouts)
    if market.arrangement is Arrangement.COLOCATED:
        rollouts = trains
    return Cell(market, tuple(jobs), rollouts, trains)


def _train_load(market: Market, job: Workload) -> float:
    busy_s = job.role_s(Role.TRAIN)
    if market.arrangement is Arrangement.COLOCATED:
        busy_s += job.role_s(Role.ROLLOUT)
    return busy_s


def _seats(
    market: Market,
    jobs: Sequence[Workload],
    role: Role,
    loads: Sequence[float],
    count: int,
    apart: Sequence[Seats],
) -> tuple[Seats, ...]:
    """Groups of the jobs, longest first on the least loaded that has room.

    Jobs that share a group already (`apart`) rather do not share another: otherwise some would
    meet everybody everywhere and others nobody. Where jobs may have several groups they meet
    anyway: there the largest states are seated first, and the room left goes to copies of the
    smallest. Jobs that are pinned come before all others, and have no copies.
    """
    is_pooled = market.max_seats > 1 and count > 1
    sizes, memory = [job.bytes_for(role) for job in jobs], market.memory_for(role)
    memory = sum(sizes) if memory is None else memory
    here: list[list[int]] = [[] for _ in range(count)]
    used_bytes, used = [0] * count, [0.0] * count

    def crowd(index: int, place: int) -> tuple[bool, float]:
        met = () if is_pooled else (i for i in here[place] if set(apart[i]) & set(apart[index]))
        return not fits(index, place), used[place] + MEETING_TWICE * sum(loads[i] for i in met)

    def fits(index: int, place: int) -> bool:
        return used_bytes[place] + sizes[index] <= memory and len(here[place]) < market.max_jobs

    def seat(index: int, places: Iterable[int]) -> None:
        place = min(places, key=partial(crowd, index))
        here[place].append(index)
        used_bytes[place] += sizes[index]
        used[place] += loads[index]

    order = sorted(range(len(jobs)), key=lambda i: (-sizes[i] * is_pooled, -loads[i], jobs[i].name))
    pinned, widths = _pinned_places(jobs, role), [job.width(role) for job in jobs]
    for index in sorted(order, key=lambda i: (not pinned[i], -widths[i])):
        for place in pinned[index] or widths[index] * (None,):
            seat(index, [p for p in range(count) if index not in here[p] and place in {None, p}])
    narrow = [i for i in reversed(order) if widths[i] == 1 and not pinned[i]]
    for num_seats in range(1, market.max_seats if is_pooled else 1):
        for index in narrow:
            there = [p for p in range(count) if index not in here[p] and fits(index, p)]
            if there and sum(index in place for place in here) == num_seats:
                seat(index, there)
    return _places(role, here, len(jobs))


def _pinned_places(jobs: Sequence[Workload], role: Role) -> list[tuple[int, ...]]:
    """Per job the places of the groups it is pinned to: the first ones, one for each group."""
    pins = [job.pinned.of(role) for job in jobs]
    place_of = {name: place for place, name in enumerate(sorted(set().union(*pins)))}
    return [tuple(place_of[name] for name in names) for names in pins]


def _places(role: Role, here: Sequence[Sequence[int]], num_jobs: int) -> tuple[Seats, ...]:
    names = [f"{role}-{place}" for place in range(len(here))]
    found: list[list[str]] = [[] for _ in range(num_jobs)]
    for name, jobs in zip(names, here, strict=True):
        for index in jobs:
            found[index].append(name)
    return tuple(map(tuple, found))


@lru_cache(maxsize=_CACHED_JOBS)
def _compile(
    job: Workload,
    rollout_groups: Seats,
    train_groups: Seats,
    staleness: int,
    is_yielding: bool,
    seed: int,
    iterations: int,
    tail: Tail,
) -> SimJob:
    if not rollout_groups and staleness:
        # Rollouts that run ahead need a lane of their own, if a private one.
        rollout_groups = (f"private-{job.name}",)
    groups: dict[Role, Seats] = {
        Role.ROLLOUT: rollout_groups,
        Role.TRAIN: train_groups,
        Role.NONE: (),
    }
    places = _held(job, has_rollouts=bool(rollout_groups))
    is_train = [job.phases[place].role is Role.TRAIN for place, _ in places]
    return SimJob(
        name=job.name,
        ops=tuple(_op(job, place, wait, groups, is_yielding) for place, wait in places),
        iterations=iterations,
        tape=_tape(job, bool(rollout_groups), seed, iterations, tail),
        ahead_ops=is_train.index(True) if staleness else 0,
        staleness=staleness,
    )


def _held(job: Workload, *, has_rollouts: bool) -> list[tuple[int, list[int]]]:
    """Phases that hold a group, each with those that follow it without one."""
    free = {Role.NONE} if has_rollouts else {Role.NONE, Role.ROLLOUT}
    held = [place for place, phase in enumerate(job.phases) if phase.role not in free]
    count = len(job.phases)
    # A loop may begin with phases that hold no group: they follow the last op of the pass before.
    following = [*held[1:], held[0] + count]
    waits = [[i % count for i in range(a + 1, b)] for a, b in zip(held, following, strict=True)]
    return list(zip(held, waits, strict=True))


@lru_cache(maxsize=_CACHED_TAPES)
def _tape(job: Workload, has_rollouts: bool, seed: int, iterations: int, tail: Tail) -> Tape:
    """Leases and waits of a job: the same wherever it sits."""
    places = _held(job, has_rollouts=has_rollouts)
    return tuple(
        tuple((row[place], sum(row[i] for i in wait)) for place, wait in places)
        for row in draw(job, seed, iterations, tail)
    )


def _op(
    job: Workload,
    place: int,
    wait: Sequence[int],
    groups: Mapping[Role, Seats],
    is_yielding: bool,
) -> SimOp:
    phase = job.phases[place]
    return SimOp(
        name=phase.name,
        duration_s=phase.mean_s,
        wait_s=sum(job.phases[i].mean_s for i in wait),
        groups=groups[phase.role],
        swap_s=job.rollout_swap_s if phase.role is Role.ROLLOUT else job.train_swap_s,
        is_yieldable=is_yielding and phase.role is Role.ROLLOUT,
        is_any=len(groups[phase.role]) > 1 and job.width(phase.role) == 1,
        copy_s=job.train_copy_s if phase.role is Role.TRAIN else 0.0,
    )


def _enough(job: Workload, horizon_s: float, staleness: int) -> int:
    """Iterations that outlast the horizon even if every one comes out short.

    They are few different numbers, so that a job is compiled once for many horizons: more
    iterations continue the same draws.
    """
    shortest_s = job.mean_s
    if staleness:
        shortest_s = max(job.role_s(Role.TRAIN), job.mean_s - job.role_s(Role.TRAIN))
    least = int(1.15 * horizon_s / shortest_s) + 12
    step = 1 << max(least.bit_length() - 2, 0)
    return -(-least // step) * step
