"""Lower bounds on the objective that need no solver, and what each of them admits.

A bound is worth only as much as the set of schedules it holds for, so each carries its class.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from solver.certificate import Certificate
from solver.objective import Objective
from solver.problem import Group, Job, Problem


class BoundClass(StrEnum):
    """Which schedules a bound holds for."""

    UNIVERSAL = "universal"
    """Every schedule that gives each job one iteration per round, on any placement (objective
    `round`), or that keeps every slowdown limit on average (other objectives)."""
    COMMON_CYCLE = "common_cycle"
    """Every placement on which each group repeats one cycle with every job once in it."""
    RESTRICTED = "restricted"
    """Common cycles on the placement of the plan only."""


class Proof(StrEnum):
    """How a bound was found."""

    LOAD = "load"
    """Busy ticks of all jobs, each at the cheapest price it can have."""
    CHAIN = "chain"
    """The longest job alone, at the cheapest price it can have."""
    ENUMERATION = "enumeration"
    """Every placement was looked at, each valued by its load and chain."""
    SEARCH = "search"
    """CP-SAT searched exhaustively below this value."""
    DUALS = "duals"
    """No set of jobs pays a group more than its cost (see `Certificate`)."""


@dataclass(frozen=True, slots=True)
class Bound:
    """No schedule of the class has an objective below this value."""

    ticks: int
    """The value, in the unit of the objective: priced group-ticks for `round`."""
    bound_class: BoundClass
    proof: Proof
    objective: Objective = Objective.ROUND
    """What the bound is on."""
    certificate: Certificate | None = None
    """What a proof by duals rests on."""

    def to_json(self) -> dict[str, object]:
        """The bound as JSON types, without its certificate, which is as long as the problem."""
        return {
            "ticks": self.ticks,
            "class": str(self.bound_class),
            "proof": str(self.proof),
            "objective": str(self.objective),
        }


def load_ticks(jobs: Sequence[Job]) -> int:
    """Ticks of a cycle in which the jobs occupy their group, or the busiest of their groups.

    Jobs that share must each be switched to at least once a cycle; a job alone never is.
    """
    if any(job.is_spread for job in jobs):
        return max(map(_load_ticks, _by_group(jobs).values()))
    return _load_ticks([(job.busy_ticks, least_switch_ticks(job)) for job in jobs])


def _load_ticks(here: Sequence[tuple[int, int]]) -> int:
    """Of one group, from each job's busy ticks and its cheapest switch there."""
    switches = sum(switch for _, switch in here) if len(here) > 1 else 0
    return sum(busy for busy, _ in here) + switches


def _by_group(jobs: Sequence[Job]) -> dict[str | None, list[tuple[int, int]]]:
    """Group → what each job with ops there takes of it."""
    found: dict[str | None, list[tuple[int, int]]] = {}
    for job in jobs:
        for group in dict.fromkeys(place for op in job.ops for place in job.groups_of(op)):
            here = [op for op in job.ops if group in job.groups_of(op)]
            busy = sum(op.duration_ticks for op in here)
            found.setdefault(group, []).append((busy, min(op.switch_ticks for op in here)))
    return found


def least_switch_ticks(job: Job) -> int:
    """Cheapest switch to a job."""
    return min(op.switch_ticks for op in job.ops)


def chain_ticks(jobs: Iterable[Job]) -> int:
    """Longest iteration alone."""
    return max(job.alone_ticks for job in jobs)


def cycle_floor_ticks(jobs: Sequence[Job]) -> int:
    """No common cycle of these jobs, on one group or on several of their own, is shorter."""
    return max(load_ticks(jobs), chain_ticks(jobs))


def cycle_limit_ticks(jobs: Iterable[Job]) -> int:
    """No common cycle of these jobs on one group may be longer, for the slowdown limits."""
    return min(job.limit_ticks for job in jobs)


def may_use(job: Job, group: Group) -> bool:
    """Whether a job fits a group that has nothing else on it."""
    return (
        job.memory_bytes <= group.memory_bytes
        and job.pool in {None, group.pool}
        and job.pinned_group in {None, group.id}
    )


def simple_bounds(problem: Problem) -> tuple[Bound, ...]:
    """Bounds over all placements; empty when a job fits no group."""
    prices = _cheapest_prices(problem)
    load = chain = 0
    for job in problem.jobs:
        price = prices[job.id]
        if price is None:
            return ()
        load += price * job.busy_ticks
        chain = max(chain, price * job.alone_ticks)
    if len(problem.groups) == 1:
        load = problem.groups[0].price * load_ticks(problem.jobs)
        return (
            Bound(
                problem.groups[0].price * sum(job.busy_ticks for job in problem.jobs),
                BoundClass.UNIVERSAL,
                Proof.LOAD,
            ),
            Bound(load, BoundClass.COMMON_CYCLE, Proof.LOAD),
            Bound(chain, BoundClass.COMMON_CYCLE, Proof.CHAIN),
        )
    return (
        Bound(load, BoundClass.UNIVERSAL, Proof.LOAD),
        Bound(chain, BoundClass.COMMON_CYCLE, Proof.CHAIN),
    )


def _cheapest_prices(problem: Problem) -> dict[str, int | None]:
    """Job → the least price of a group it fits alone; None if it fits none."""
    shapes: dict[tuple[object, ...], int | None] = {}
    found: dict[str, int | None] = {}
    for job in problem.jobs:
        shape = (job.memory_bytes, job.pool, job.pinned_group)
        if shape not in shapes:
            usable = (group.price for group in problem.groups if may_use(job, group))
            shapes[shape] = min(usable, default=None)
        found[job.id] = shapes[shape]
    return found
