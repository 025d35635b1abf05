"""Policies to compare with: each says which jobs share which groups, and who goes first there.

They are re-created from their publications' descriptions, in the same arrangement, with the same
draws and under the same simulator as ours.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

from solver.arrangements import Arrangement, Cell, Market, make_cell
from solver.cellvalue import Effort
from solver.dispatch.events import TICKS_PER_S, DispatchPlan, Slot
from solver.dispatch.rules import (
    FirstReady,
    KeepGroup,
    PlanOrderWithBackfill,
    StrictOrder,
)
from solver.dispatch.shortest import ShortestFirst
from solver.dispatch.views import Rule
from solver.planner import greedy
from solver.problem import Group, Job, Op, Problem
from solver.rightsizing import right_size
from solver.scoring import Dispatch, tolerances
from solver.simulate import SimJob, job_by_job
from solver.workloads import Role, Workload

MOST_LOAD = 1.2
"""Load up to which packing fills a group: at 1 no two balanced jobs would share, and limits of 1.5
leave room for more."""
WORST_CASE_CVS = 1.64
"""Standard deviations above the mean that count as the worst case: the 95th percentile."""


@dataclass(frozen=True, slots=True)
class Policy:
    """A way to share."""

    name: str
    place: Callable[[Market, Sequence[Workload], int], tuple[Cell, ...]]
    """Market, jobs and seed → cells."""
    dispatch: Dispatch


def dedicated(market: Market, jobs: Sequence[Workload], _seed: int = 0) -> tuple[Cell, ...]:
    """Groups of its own for each job."""
    return tuple(make_cell(market, [job]) for job in jobs)


def random_pairs(market: Market, jobs: Sequence[Workload], seed: int) -> tuple[Cell, ...]:
    """Two jobs, drawn at random, share one set of groups where memory allows."""
    order = list(jobs)
    random.Random(seed).shuffle(order)
    cells: list[Cell] = []
    for first in range(0, len(order), 2):
        pair = order[first : first + 2]
        cell = make_cell(market, pair)
        cells.extend([cell] if cell.fits() else dedicated(market, pair))
    return tuple(cells)


def most_idle(market: Market, jobs: Sequence[Workload], _seed: int) -> tuple[Cell, ...]:
    """Each job joins the cell with most idle time that has enough; limits are not looked at."""
    return _one_by_one(market, jobs, lambda loads: max(loads.values()))


def pack(market: Market, jobs: Sequence[Workload], _seed: int) -> tuple[Cell, ...]:
    """Each job joins the first cell that has enough idle time (PlexRL)."""
    return _one_by_one(market, jobs, lambda _loads: 0.0)


def spread(market: Market, jobs: Sequence[Workload], seed: int) -> tuple[Cell, ...]:
    """As many cells as packing needs, their loads balanced (PlexRL)."""
    count = len(pack(market, jobs, seed))
    cells: list[Cell] = []
    for job in sorted(jobs, key=lambda job: (-max(_loads(market, [job]).values()), job.name)):
        if len(cells) < count:
            cells.append(make_cell(market, [job]))
            continue
        grown = [(place, make_cell(market, [*cell.jobs, job])) for place, cell in enumerate(cells)]
        fitting = [(max(_loads(market, cell.jobs).values()), p) for p, cell in grown if cell.fits()]
        if fitting:
            place = min(fitting)[1]
            cells[place] = grown[place][1]
        else:
            cells.append(make_cell(market, [job]))
    return tuple(cells)


def rollmux_like(market: Market, jobs: Sequence[Workload], _seed: int) -> tuple[Cell, ...]:
    """Each job joins where its worst case costs least and keeps every limit (RollMux).

    Joining may mean one more rollout group. Worst-case lengths on all sides, a common cycle.
    """
    cells: list[Cell] = []
    for job in jobs:
        options: list[tuple[float, int, Cell]] = []
        alone = make_cell(market, [job])
        options.append((alone.price, len(cells), alone))
        for place, cell in enumerate(cells):
            for more in (0, 1) if market.arrangement is Arrangement.SPLIT else (0,):
                grown = make_cell(
                    market,
                    [*cell.jobs, job],
                    num_rollout=max(cell.num_rollout, 1) + more,
                    num_train=cell.num_train,
                )
                if grown.fits() and _keeps_worst_case(grown):
                    options.append((grown.price - cell.price, place, grown))
        _, place, chosen = min(options, key=lambda option: option[:2])
        cells[place : place + 1] = [chosen]
    return tuple(cells)


def ours(effort: Effort | None = None) -> Policy:
    """Right-sized cells, plan order with backfill."""

    def place(market: Market, jobs: Sequence[Workload], seed: int) -> tuple[Cell, ...]:
        return right_size(market, jobs, dispatch=planned_order, effort=effort, seed=seed)

    return Policy("ours", place, planned_order)


def first_ready(_cell: Cell) -> tuple[DispatchPlan, Rule]:
    """First ready, first served."""
    return DispatchPlan(), FirstReady()


def round_robin(cell: Cell) -> tuple[DispatchPlan, Rule]:
    """The jobs' ops in turn, strictly."""
    return job_by_job(_means(cell)), StrictOrder()


def planned_order(cell: Cell) -> tuple[DispatchPlan, Rule]:
    """The planner's order with backfill; over several groups whoever is ready first."""
    return _planned(cell), PlanOrderWithBackfill()


def shortest_first(cell: Cell) -> tuple[DispatchPlan, Rule]:
    """The shortest op, as long as nobody comes near its limit."""
    return DispatchPlan(), ShortestFirst(tolerances(cell.jobs))


def smallest_share_first(cell: Cell) -> tuple[DispatchPlan, Rule]:
    """What takes the smallest share of its job's iteration, as long as nobody nears its limit."""
    return DispatchPlan(), ShortestFirst(
        tolerances(cell.jobs),
        {job.name: sum(op.duration_s + op.wait_s for op in job.ops) for job in _means(cell)},
    )


def keep_group(cell: Cell) -> tuple[DispatchPlan, Rule]:
    """First ready, but a job keeps its group from one op to the next where it does not wait."""
    return _planned(cell), KeepGroup(_following(cell), FirstReady())


def _following(cell: Cell) -> frozenset[tuple[str, str]]:
    return frozenset(
        (job.name, following.name)
        for job in _means(cell)
        for op, following in pairwise(job.ops)
        if op.wait_s == 0 and op.groups == following.groups
    )


def strict_plan(cell: Cell) -> tuple[DispatchPlan, Rule]:
    """The planner's order, followed strictly."""
    plan = _planned(cell)
    return (plan if plan.orders else job_by_job(_means(cell))), StrictOrder()


POLICIES: tuple[Policy, ...] = (
    Policy("dedicated", dedicated, first_ready),
    Policy("random_pairs", random_pairs, first_ready),
    Policy("most_idle", most_idle, first_ready),
    Policy("rollmux_like", rollmux_like, first_ready),
    Policy("pack", pack, round_robin),
    Policy("spread", spread, round_robin),
    Policy("spread_backfill", spread, first_ready),
)
"""Those that need no planner."""


def _loads(market: Market, jobs: Sequence[Workload], cvs: float = 0.0) -> Mapping[str, float]:
    """Share of a group's time the jobs take at full speed, per kind of shared group."""
    lanes: dict[str, tuple[Role, ...]] = {"train": (Role.TRAIN,)}
    if market.arrangement is Arrangement.COLOCATED:
        lanes = {"group": (Role.TRAIN, Role.ROLLOUT)}
    elif market.arrangement is Arrangement.SPLIT:
        lanes["rollout"] = (Role.ROLLOUT,)
    return {
        lane: sum(_busy_s(job, roles, cvs) / job.mean_s for job in jobs)
        for lane, roles in lanes.items()
    }


def _busy_s(job: Workload, roles: Sequence[Role], cvs: float) -> float:
    return sum(p.mean_s * (1 + cvs * p.cv) for p in job.phases if p.role in roles)


def _one_by_one(
    market: Market, jobs: Sequence[Workload], rank: Callable[[Mapping[str, float]], float]
) -> tuple[Cell, ...]:
    cells: list[Cell] = []
    for job in jobs:
        options = []
        for place, cell in enumerate(cells):
            grown = make_cell(market, [*cell.jobs, job])
            if grown.fits() and max(_loads(market, grown.jobs).values()) <= MOST_LOAD:
                options.append((rank(_loads(market, cell.jobs)), place, grown))
        if options:
            _, place, grown = min(options, key=lambda option: option[:2])
            cells[place] = grown
        else:
            cells.append(make_cell(market, [job]))
    return tuple(cells)


def _keeps_worst_case(cell: Cell) -> bool:
    """Whether one cycle of everybody's worst case is within everybody's limit."""
    every = (Role.ROLLOUT, Role.TRAIN, Role.NONE)
    cycle_s = max(_busy_s(job, every, WORST_CASE_CVS) for job in cell.jobs)
    lanes = [(cell.train_groups, [Role.TRAIN]), (cell.rollout_groups, [Role.ROLLOUT])]
    if cell.market.arrangement is Arrangement.COLOCATED:
        lanes = [(cell.train_groups, [Role.TRAIN, Role.ROLLOUT])]
    for seats, roles in lanes:
        for group in set().union(*seats):
            here = [job for job, places in zip(cell.jobs, seats, strict=True) if group in places]
            cycle_s = max(cycle_s, sum(_busy_s(job, roles, WORST_CASE_CVS) for job in here))
    limits = (job.slowdown_limit * _busy_s(job, every, WORST_CASE_CVS) for job in cell.jobs)
    return cycle_s <= min(limits)


def _means(cell: Cell) -> list[SimJob]:
    return cell.compile(0, 1.0)


@lru_cache(maxsize=4096)
def _planned(cell: Cell) -> DispatchPlan:
    """The order of the cell's only shared group; empty where there are several."""
    jobs = _means(cell)
    groups = {group for job in jobs for op in job.ops for group in op.groups}
    if len(groups) > 1:
        return DispatchPlan()
    (group,) = groups
    problem = Problem((Group(group, 1),), tuple(_job(job) for job in jobs)).without_limits()
    (timeline,) = greedy(problem).timelines
    lengths = {(job.id, op.name): op for job in problem.jobs for op in job.ops}
    slots = (
        Slot(job, op, lengths[job, op].duration_ticks, lengths[job, op].wait_ticks)
        for job, op in timeline.order
    )
    return DispatchPlan({group: tuple(slots)})


def _job(job: SimJob) -> Job:
    return Job(
        id=job.name,
        ops=tuple(
            Op(
                op.name,
                max(round(op.duration_s * TICKS_PER_S), 1),
                round(op.wait_s * TICKS_PER_S),
                round((op.swap_s or 0.0) * TICKS_PER_S),
            )
            for op in job.ops
        ),
        memory_bytes=0,
    )
