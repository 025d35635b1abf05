"""Follows a proof by duals again: no set of jobs may pay a group more than serving it costs.

Shares no code with pricing. Sets are gone through by a member that each of them has (the strictest
job, the longest, or the one that takes the largest share), and for each such member a table over
memory and load gives the most that the others can pay. Load is rounded down, which only ever lets
more sets in: what passes here holds.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from solver.bounds import Bound, BoundClass
from solver.certificate import Certificate
from solver.objective import Objective
from solver.problem import Group, Job, Problem
from solver.recheck_pairs import Pairs

MILLION = 10**6
STEPS = 256
"""Steps of the load; a multiple of those of pricing, so that nothing is let in that it kept out."""
MAX_SUMS = 400
MEMORY_STEPS = 64
MAX_COUNTED = 16
GRID_PERMILLE = 50
WHOLE = 10**9
NEVER = -(2**60)

_Table = dict[tuple[int, int], NDArray[np.int64]]


@dataclass(frozen=True, slots=True)
class _Part:
    """Jobs that may join a member on a group, and what all sets of them pay before that."""

    member: Job
    paid: int
    """Dual of the member less cost and charge."""
    capacity: int
    memory_bytes: int
    most_jobs: int
    candidates: Sequence[tuple[int, int, int]]
    """Load, memory and profit of each."""
    others: Sequence[Job]
    """The candidates themselves."""


def follow(problem: Problem, bound: Bound) -> bool:
    """Whether the certificate of a bound gives its value for its class."""
    certificate = bound.certificate
    if certificate is None or certificate.objective is not bound.objective:
        return False
    if set(certificate.duals) != {job.id for job in problem.jobs}:
        return False
    groups = {group.id for group in problem.groups}
    if not set(certificate.charges) <= groups or min(certificate.charges.values(), default=0) < 0:
        return False
    by_cycle = bound.objective not in {Objective.GROUPS, Objective.COST}
    if by_cycle and bound.bound_class is BoundClass.UNIVERSAL:
        return False
    if bound.ticks > _value(problem, certificate):
        return False
    shapes: dict[tuple[object, ...], Group] = {}
    pinned = {job.pinned_group for job in problem.jobs}
    for group in problem.groups:
        charge = certificate.charges.get(group.id, 0)
        name = group.id if group.id in pinned else None
        key = (group.memory_bytes, group.pool, group.max_jobs, group.price, charge, name)
        shapes.setdefault(key, group)
    if certificate.is_pairwise and bound.bound_class is BoundClass.UNIVERSAL:
        return False
    pairs = Pairs() if certificate.is_pairwise else None
    return all(
        _most_paid(part) <= 0 or (pairs is not None and _most_paid(_possible(part, pairs)) <= 0)
        for group in shapes.values()
        for part in _parts(problem, group, certificate, bound.bound_class)
    )


def _value(problem: Problem, certificate: Certificate) -> int:
    total = sum(certificate.duals.values()) - sum(certificate.charges.values())
    if certificate.objective is Objective.THROUGHPUT:
        return total
    if certificate.objective is not Objective.GPU_HOURS:
        return -(-total // MILLION)
    if total >= 0:
        rate = sum(MILLION * job.weight for job in problem.jobs)
    else:
        rate = sum(MILLION * job.weight * _alone(job) // _limit(job) for job in problem.jobs)
    return certificate.theta + total * MILLION // max(rate, 1)


def _parts(
    problem: Problem, group: Group, certificate: Certificate, bound_class: BoundClass
) -> Iterator[_Part]:
    jobs = [job for job in problem.jobs if _fits_alone(job, group)]
    if bound_class is BoundClass.UNIVERSAL:
        shares = {job.id: _busy(job) * WHOLE // _limit(job) for job in jobs}
        ordered = sorted(jobs, key=lambda job: -shares[job.id])
        for at, member in enumerate(ordered):
            left = WHOLE - shares[member.id]
            yield _part(group, certificate, member, ordered[at + 1 :], shares, left, 1)
        return
    loads = {job.id: _busy(job) + min(op.switch_ticks for op in job.ops) for job in jobs}
    if certificate.objective in {Objective.GROUPS, Objective.COST}:
        ordered = sorted(jobs, key=_limit)
        for at, member in enumerate(ordered):
            cycle = _limit(member)
            others = [job for job in ordered[at + 1 :] if _alone(job) <= cycle]
            left = cycle - loads[member.id]
            yield _part(group, certificate, member, others, loads, left, cycle)
        return
    ordered = sorted(jobs, key=lambda job: -_alone(job))
    for at, member in enumerate(ordered):
        for low, high, is_by_load in _ranges(member, certificate.objective):
            some = [job for job in ordered[at + 1 :] if _limit(job) >= low]
            left = high - loads[member.id]
            yield _part(group, certificate, member, some, loads, left, low, is_by_load=is_by_load)


def _ranges(member: Job, objective: Objective) -> Iterator[tuple[int, int, bool]]:
    """Cycles of sets whose longest job this is: its iteration, then longer ones by their load."""
    low, last = _alone(member), _limit(member)
    yield low, low, False
    if objective is Objective.ROUND:
        yield low, last, True
        return
    while low <= last:
        high = min(max(low, low + low * GRID_PERMILLE // 1000 - 1), last)
        yield low, high, False
        low = high + 1


def _part(
    group: Group,
    certificate: Certificate,
    member: Job,
    others: Sequence[Job],
    loads: dict[str, int],
    left: int,
    cycle: int,
    *,
    is_by_load: bool = False,
) -> _Part:
    objective, price = certificate.objective, group.price
    cost = {
        Objective.ROUND: 0 if is_by_load else MILLION * price * cycle,
        Objective.GROUPS: MILLION,
        Objective.COST: MILLION * price,
        Objective.GPU_HOURS: MILLION * price,
        Objective.THROUGHPUT: 0,
    }[objective]

    def profit(job: Job) -> int:
        dual = certificate.duals[job.id]
        if is_by_load:
            return dual - MILLION * price * loads[job.id]
        if objective not in {Objective.GPU_HOURS, Objective.THROUGHPUT}:
            return dual
        rate = MILLION * job.weight * _alone(job) // cycle + 1
        worth = rate if objective is Objective.THROUGHPUT else rate * certificate.theta // MILLION
        return dual + worth + (objective is Objective.GPU_HOURS)

    return _Part(
        member=member,
        paid=profit(member) - cost - certificate.charges.get(group.id, 0),
        capacity=left,
        memory_bytes=group.memory_bytes - member.memory_bytes,
        most_jobs=(group.max_jobs or len(others) + 1) - 1,
        candidates=[(loads[job.id], job.memory_bytes, profit(job)) for job in others],
        others=others,
    )


def _possible(part: _Part, pairs: Pairs) -> _Part:
    """The part without jobs that would pay but have no common cycle with the member."""
    kept = [
        (entry, job)
        for entry, job in zip(part.candidates, part.others, strict=True)
        if entry[2] > 0
        and entry[0] <= part.capacity
        and entry[1] <= part.memory_bytes
        and pairs.is_possible(part.member, job)
    ]
    return replace(part, candidates=[entry for entry, _ in kept], others=[job for _, job in kept])


def _most_paid(part: _Part) -> int:
    """An upper bound on what a set pays beyond its cost."""
    fitting = [
        entry
        for entry in part.candidates
        if entry[0] <= part.capacity and entry[1] <= part.memory_bytes
    ]
    useful = sorted((entry for entry in fitting if entry[2] > 0), key=lambda entry: -entry[2])
    most = part.paid + sum(profit for _, _, profit in useful[: part.most_jobs])
    if most <= 0 or not useful:
        return most
    unit, counted = 1, part.most_jobs < len(fitting)
    sizes = sorted({memory for _, memory, _ in fitting})
    if _num_sums(sizes, part.memory_bytes, part.most_jobs if counted else None) > MAX_SUMS:
        unit = max(part.memory_bytes // MEMORY_STEPS, 1)
        counted = counted and part.most_jobs <= MAX_COUNTED
    table: _Table = {(0, 0): np.zeros(STEPS + 1, np.int64)}
    for load, memory, profit in useful:
        _extend(
            table,
            load * STEPS // max(part.capacity, 1),
            (int(counted), memory // unit),
            (part.most_jobs, part.memory_bytes // unit),
            profit,
        )
    return part.paid + max(int(values.max()) for values in table.values())


def _extend(
    table: _Table, load: int, step: tuple[int, int], most: tuple[int, int], profit: int
) -> None:
    """Let one more job join every set it fits into."""
    offers: _Table = {}
    for (count, used), values in table.items():
        after = (count + step[0], used + step[1])
        if after[0] <= most[0] and after[1] <= most[1]:
            joined = np.full(STEPS + 1, NEVER, np.int64)
            joined[load:] = values[: STEPS + 1 - load] + profit
            offers[after] = joined
    for key, joined in offers.items():
        table[key] = np.maximum(table[key], joined) if key in table else joined


def _num_sums(sizes: Sequence[int], memory_bytes: int, most_jobs: int | None) -> int:
    """How many sums there are, counted no further than one beyond `MAX_SUMS`."""
    found = {(0, 0)}
    ends = [(0, 0)]
    while ends and len(found) <= MAX_SUMS:
        count, used = ends.pop()
        if count == most_jobs:
            continue
        for size in sizes:
            after = (count if most_jobs is None else count + 1, used + size)
            if after[1] <= memory_bytes and after not in found:
                found.add(after)
                ends.append(after)
    return len(found)


def _fits_alone(job: Job, group: Group) -> bool:
    return (
        job.memory_bytes <= group.memory_bytes
        and job.pool in {None, group.pool}
        and job.pinned_group in {None, group.id}
    )


def _busy(job: Job) -> int:
    return sum(op.duration_ticks for op in job.ops)


def _alone(job: Job) -> int:
    return sum(op.duration_ticks + op.wait_ticks for op in job.ops)


def _limit(job: Job) -> int:
    return job.slowdown_limit_permille * _alone(job) // 1000
