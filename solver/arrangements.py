"""Sharing arrangements: which groups the phases of jobs run on, and what those groups cost.

A *cell* is a closed set of groups and the jobs on them: nothing outside it meets them, so each is
planned, simulated and paid for by itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

from solver.errors import ProblemError
from solver.simulate import SimJob, SimOp
from solver.workloads import Role, Tail, Workload, draw

MEETING_TWICE = 0.5
"""What a job that one shares another group with counts beyond its load when seats are chosen."""
_CACHED_JOBS = 8192
"""Compiled jobs kept: searching meets the same job on the same seat again and again."""


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
    max_jobs: int = 5
    """Most jobs on one shared group."""
    staleness: int = 0
    """Iterations by which rollouts may run ahead of training (0: synchronous)."""
    is_yielding: bool = False
    """Whether rollouts can give their group up in mid-sample and go on later."""

    @property
    def dedicated_price(self) -> float:
        """What one job's own groups cost in this arrangement."""
        if self.arrangement is Arrangement.COLOCATED:
            return self.train_price
        return self.rollout_price + self.train_price


@dataclass(frozen=True, slots=True)
class Cell:
    """Jobs, and the groups they share with nobody else."""

    market: Market
    jobs: tuple[Workload, ...]
    rollout_groups: tuple[str, ...]
    """Per job its rollout group; "" where rollouts hold no shared group."""
    train_groups: tuple[str, ...]
    """Per job its train group."""

    @property
    def price(self) -> float:
        """What its groups cost per second."""
        trains = len(set(self.train_groups)) * self.market.train_price
        match self.market.arrangement:
            case Arrangement.COLOCATED:
                return trains
            case Arrangement.SPLIT:
                return trains + len(set(self.rollout_groups)) * self.market.rollout_price
            case Arrangement.PRIVATE_ROLLOUT:
                return trains + len(self.jobs) * self.market.rollout_price

    def fits(self) -> bool:
        """Whether memory and the number of jobs per shared group hold."""
        shared = [self.train_groups]
        if self.market.arrangement is Arrangement.SPLIT:
            shared.append(self.rollout_groups)
        for seats in shared:
            for group in set(seats):
                here = [job for job, seat in zip(self.jobs, seats, strict=True) if seat == group]
                memory = self.market.memory_bytes
                if len(here) > self.market.max_jobs:
                    return False
                if memory is not None and sum(job.memory_bytes for job in here) > memory:
                    return False
        return True

    def compile(self, seed: int, horizon_s: float, tail: Tail = Tail.LOGNORMAL) -> list[SimJob]:
        """The jobs as the simulator takes them, with draws that outlast the horizon."""
        staleness, is_yielding = self.market.staleness, self.market.is_yielding
        seats = zip(self.jobs, self.rollout_groups, self.train_groups, strict=True)
        return [
            _compile(job, rollout, train, staleness, is_yielding, seed, horizon_s, tail)
            for job, rollout, train in seats
        ]


def make_cell(
    market: Market, jobs: Sequence[Workload], *, num_rollout: int = 1, num_train: int = 1
) -> Cell:
    """Seat jobs on that many rollout and train groups, longest first on the least loaded.

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
    rollouts: tuple[str, ...] = ("",) * len(jobs)
    if market.arrangement is Arrangement.SPLIT:
        loads = [job.role_s(Role.ROLLOUT) for job in jobs]
        rollouts = _seats(jobs, "rollout", loads, num_rollout, rollouts)
    loads = [_train_load(market, job) for job in jobs]
    trains = _seats(jobs, "train", loads, num_train, rollouts)
    if market.arrangement is Arrangement.COLOCATED:
        rollouts = trains
    return Cell(market, tuple(jobs), rollouts, trains)


def _train_load(market: Market, job: Workload) -> float:
    busy_s = job.role_s(Role.TRAIN)
    if market.arrangement is Arrangement.COLOCATED:
        busy_s += job.role_s(Role.ROLLOUT)
    return busy_s


def _seats(
    jobs: Sequence[Workload], kind: str, loads: Sequence[float], count: int, apart: Sequence[str]
) -> tuple[str, ...]:
    """Groups of the jobs, longest first on the least loaded.

    Jobs that share a group already (`apart`) rather do not share another: otherwise some would
    meet everybody everywhere and others nobody.
    """
    seats = [""] * len(jobs)
    for index in sorted(range(len(jobs)), key=lambda i: (-loads[i], jobs[i].name)):

        def crowd(place: int, index: int = index) -> float:
            here = [i for i, seat in enumerate(seats) if seat == f"{kind}-{place}"]
            met = [loads[i] for i in here if apart[i] and apart[i] == apart[index]]
            return sum(loads[i] for i in here) + MEETING_TWICE * sum(met)

        seats[index] = f"{kind}-{min(range(count), key=crowd)}"
    return tuple(seats)


@lru_cache(maxsize=_CACHED_JOBS)
def _compile(
    job: Workload,
    rollout_group: str,
    train_group: str,
    staleness: int,
    is_yielding: bool,
    seed: int,
    horizon_s: float,
    tail: Tail,
) -> SimJob:
    if not rollout_group and staleness:
        # Rollouts that run ahead need a lane of their own, if a private one.
        rollout_group = f"private-{job.name}"
    groups = {Role.ROLLOUT: rollout_group, Role.TRAIN: train_group, Role.NONE: ""}
    iterations = _enough(job, horizon_s, staleness)
    held = [place for place, phase in enumerate(job.phases) if groups[phase.role]]
    count = len(job.phases)
    # A loop may begin with phases that hold no group: they follow the last op of the pass before.
    following = [*held[1:], held[0] + count]
    waits = [[i % count for i in range(a + 1, b)] for a, b in zip(held, following, strict=True)]
    places = list(zip(held, waits, strict=True))
    is_train = [job.phases[place].role is Role.TRAIN for place in held]
    return SimJob(
        name=job.name,
        ops=tuple(_op(job, place, wait, groups, is_yielding) for place, wait in places),
        iterations=iterations,
        tape=tuple(
            tuple((row[place], sum(row[i] for i in wait)) for place, wait in places)
            for row in draw(job, seed, iterations, tail)
        ),
        ahead_ops=is_train.index(True) if staleness else 0,
        staleness=staleness,
    )


def _op(
    job: Workload,
    place: int,
    wait: Sequence[int],
    groups: Mapping[Role, str],
    is_yielding: bool,
) -> SimOp:
    phase = job.phases[place]
    return SimOp(
        name=phase.name,
        duration_s=phase.mean_s,
        wait_s=sum(job.phases[i].mean_s for i in wait),
        groups=(groups[phase.role],),
        swap_s=job.rollout_swap_s if phase.role is Role.ROLLOUT else job.train_swap_s,
        is_yieldable=is_yielding and phase.role is Role.ROLLOUT,
    )


def _enough(job: Workload, horizon_s: float, staleness: int) -> int:
    """Iterations that outlast the horizon even if every one comes out short."""
    shortest_s = job.mean_s
    if staleness:
        shortest_s = max(job.role_s(Role.TRAIN), job.mean_s - job.role_s(Role.TRAIN))
    return int(1.15 * horizon_s / shortest_s) + 12
