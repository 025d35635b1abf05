"""Checks a bound from the problem alone, sharing no code with whatever claimed it.

Load, chain and enumeration are recomputed, duals are followed (`solver.recheck_duals`). What
CP-SAT proved by search has no certificate that could be followed without it, and is answered as
unchecked rather than as true.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from itertools import product

from solver.bounds import Bound, BoundClass, Proof
from solver.objective import Objective
from solver.problem import Group, Job, Problem
from solver.recheck_duals import follow

MAX_PLACEMENTS = 200_000
"""Placements enumerated at most: about two seconds."""


class Recheck(StrEnum):
    """What a second look at a bound found."""

    HOLDS = "holds"
    REFUTED = "refuted"
    """Its proof does not give its value, or not for its class."""
    UNCHECKED = "unchecked"
    """Its proof cannot be followed without the solver, or not in reasonable time."""


def recheck(problem: Problem, bound: Bound) -> Recheck:
    """Follow the proof of a bound again."""
    if bound.proof is Proof.DUALS:
        return Recheck.HOLDS if follow(problem, bound) else Recheck.REFUTED
    if bound.objective is not Objective.ROUND:
        return Recheck.UNCHECKED
    match bound.proof:
        case Proof.LOAD:
            value = _load(problem, bound.bound_class)
        case Proof.CHAIN:
            # Iterations of one job may overlap with another's round unless cycles are common.
            value = None if bound.bound_class is BoundClass.UNIVERSAL else _chain(problem)
        case Proof.ENUMERATION:
            if len(problem.groups) ** len(problem.jobs) > MAX_PLACEMENTS:
                return Recheck.UNCHECKED
            is_universal = bound.bound_class is BoundClass.UNIVERSAL
            value = None if is_universal else min(_costs(problem), default=None)
        case Proof.SEARCH:
            return Recheck.UNCHECKED
    return Recheck.HOLDS if value is not None and bound.ticks <= value else Recheck.REFUTED


def _prices(problem: Problem, job: Job) -> list[int]:
    """Prices of the groups that could carry the job alone."""
    return [group.price for group in problem.groups if _fits(group, [job])]


def _load(problem: Problem, bound_class: BoundClass) -> int | None:
    """Every job's busy time has to be paid for, on the cheapest group it can have."""
    total = 0
    for job in problem.jobs:
        prices = _prices(problem, job)
        if not prices:
            return None
        total += min(prices) * sum(op.duration_ticks for op in job.ops)
    must_share = len(problem.groups) == 1 and len(problem.jobs) > 1
    if must_share and bound_class is not BoundClass.UNIVERSAL:
        switches = sum(min(op.switch_ticks for op in job.ops) for job in problem.jobs)
        total += problem.groups[0].price * switches
    return total


def _chain(problem: Problem) -> int | None:
    """The group of the longest job is held for at least one iteration of it."""
    lengths = []
    for job in problem.jobs:
        prices = _prices(problem, job)
        if not prices:
            return None
        lengths.append(min(prices) * sum(op.duration_ticks + op.wait_ticks for op in job.ops))
    return max(lengths)


def _costs(problem: Problem) -> Iterator[int]:
    """Price × least cycle, and what moves cost, of every placement that keeps all requirements."""
    current = problem.current or {}
    for choice in product(problem.groups, repeat=len(problem.jobs)):
        cost = 0
        for group in problem.groups:
            here = [job for job, at in zip(problem.jobs, choice, strict=True) if at is group]
            if not here:
                continue
            cycle = _least_cycle(here)
            if not _fits(group, here) or any(
                cycle * 1000
                > job.slowdown_limit_permille
                * sum(op.duration_ticks + op.wait_ticks for op in job.ops)
                for job in here
            ):
                break
            moved = sum(job.move_ticks for job in here if current.get(job.id, group.id) != group.id)
            lost = 1_000_000 * moved // problem.horizon_ticks
            cost += group.price * cycle * (1_000_000 + lost)
        else:
            yield cost // 1_000_000


def _least_cycle(jobs: list[Job]) -> int:
    busy = sum(op.duration_ticks for job in jobs for op in job.ops)
    if len(jobs) > 1:
        busy += sum(min(op.switch_ticks for op in job.ops) for job in jobs)
    longest = max(sum(op.duration_ticks + op.wait_ticks for op in job.ops) for job in jobs)
    return max(busy, longest)


def _fits(group: Group, jobs: list[Job]) -> bool:
    ids = {job.id for job in jobs}
    return (
        sum(job.memory_bytes for job in jobs) <= group.memory_bytes
        and (group.max_jobs is None or len(jobs) <= group.max_jobs)
        and all(job.pool in {None, group.pool} for job in jobs)
        and all(job.pinned_group in {None, group.id} for job in jobs)
        and not any(ids.intersection(job.forbids) for job in jobs)
    )
