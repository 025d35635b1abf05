"""Pairs of jobs that have no common cycle within their limits, though load and chain allow one.

Exact and without a solver: for two jobs of few ops there are few cyclic orders of their ops on the
group, and for one order the starts form a system of differences, feasible unless it has a cycle of
positive length (Bellman 1958). Many pairs are looked at together. A set that holds an impossible
pair has no common cycle either, since taking jobs out of a timeline leaves it valid.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from solver.bounds import least_switch_ticks
from solver.placement.knapsack import Ints
from solver.problem import Job, Problem

MAX_PAIR_OPS = 8
"""Ops of both jobs together up to which orders are counted out: there are 140 of 4 and 4."""
MAX_JOBS = 1_000
"""With more jobs pairs are not looked at: there are too many."""
NUM_SWEEPS = 4
"""Sweeps after which the starts of a feasible order stand still: a path uses each of the three
edges that point backwards (round the cycle, and each job's last op to its first) at most once."""
_CHUNK = 200

Flags = NDArray[np.bool_]


def impossible_pairs(problem: Problem) -> Flags:
    """Symmetric table over the jobs: whether two of them can share no group.

    Not every such pair is found: those of many ops are left out, and there may be too many jobs.
    """
    jobs = problem.jobs
    table = np.zeros((len(jobs), len(jobs)), np.bool_)
    if len(jobs) > MAX_JOBS:
        return table
    by_shape: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for one, other in _worth_a_look(problem):
        shape = (len(jobs[one].ops), len(jobs[other].ops))
        by_shape.setdefault(shape, []).append((one, other))
    for pairs in by_shape.values():
        for start in range(0, len(pairs), _CHUNK):
            some = pairs[start : start + _CHUNK]
            possible = _are_possible([(jobs[one], jobs[other]) for one, other in some])
            for (one, other), is_possible in zip(some, possible.tolist(), strict=True):
                table[one, other] = table[other, one] = not is_possible
    return table


def _worth_a_look(problem: Problem) -> Iterator[tuple[int, int]]:
    """Pairs whose load and chain allow a common cycle, the smaller job first."""
    jobs = problem.jobs
    memory = max(group.memory_bytes for group in problem.groups)
    loads = [job.busy_ticks + least_switch_ticks(job) for job in jobs]
    for one, job in enumerate(jobs):
        for other in range(one + 1, len(jobs)):
            rival = jobs[other]
            limit = min(job.limit_ticks, rival.limit_ticks)
            if (
                loads[one] + loads[other] <= limit
                and job.alone_ticks <= limit
                and rival.alone_ticks <= limit
                and job.memory_bytes + rival.memory_bytes <= memory
                and 2 < len(job.ops) + len(rival.ops) <= MAX_PAIR_OPS
            ):
                yield (one, other) if len(job.ops) <= len(rival.ops) else (other, one)


def _are_possible(pairs: list[tuple[Job, Job]]) -> Flags:
    """Per pair, all of one shape, whether some order is feasible at the stricter limit."""
    first, second = pairs[0]
    order, before, wraps = _orders(len(first.ops), len(second.ops))
    ops = [(*one.ops, *other.ops) for one, other in pairs]
    duration = np.array([[op.duration_ticks for op in row] for row in ops], np.int64)
    wait = np.array([[op.wait_ticks for op in row] for row in ops], np.int64)
    switch = np.array([[op.switch_ticks for op in row] for row in ops], np.int64)
    cycle = np.array([min(one.limit_ticks, other.limit_ticks) for one, other in pairs], np.int64)
    count = len(first.ops)
    ahead = np.roll(order, 1, axis=1)
    changes = (order < count) != (ahead < count)
    held = duration[:, ahead] + switch[:, order] * changes
    held[:, :, 0] -= cycle[:, None]
    op_before = np.take_along_axis(order, before, axis=1)
    chained = (duration + wait)[:, op_before] - cycle[:, None, None] * wraps
    starts = np.zeros_like(held)
    for _ in range(NUM_SWEEPS):
        _sweep(starts, held, chained, before)
    still = starts.copy()
    _sweep(starts, held, chained, before)
    possible: Flags = (starts == still).all(axis=2).any(axis=1)
    return possible


def _sweep(starts: Ints, held: Ints, chained: Ints, before: Ints) -> None:
    """Move each op of each order to where the one before it on the group and in its job allow."""
    rows = np.arange(before.shape[0])
    for at in range(before.shape[1]):
        after_held = starts[:, :, at - 1] + held[:, :, at]
        after_chain = starts[:, rows, before[:, at]] + chained[:, :, at]
        np.maximum(starts[:, :, at], after_held, out=starts[:, :, at])
        np.maximum(starts[:, :, at], after_chain, out=starts[:, :, at])


@lru_cache(maxsize=64)
def _orders(count: int, others: int) -> tuple[Ints, Ints, Flags]:
    """Cyclic orders that keep both loops, the first op of the first job in front.

    Returns
    -------
    order, before, wraps
        Per order and position: the op there, the position of the op before it in its job, and
        whether that lies in the cycle before.
    """
    total = count + others
    found = []
    for places in combinations(range(1, total), others):
        for turn in range(others):
            theirs = iter([count + (turn + step) % others for step in range(others)])
            ours = iter(range(count))
            found.append([next(theirs if at in places else ours) for at in range(total)])
    order = np.array(found, np.int64)
    position = np.argsort(order, axis=1)
    previous = np.array(
        [
            (op - 1) % count if op < count else count + (op - count - 1) % others
            for op in range(total)
        ]
    )
    before = np.take_along_axis(position, previous[order], axis=1)
    wraps = before >= np.arange(total)[None, :]
    return order, before, wraps
