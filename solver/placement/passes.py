"""Lets jobs pass their loop several times in the cycle of their group: short ones beside long.

A slowdown limit is kept on average, so in a cycle of length C a job with an iteration of at most L
ticks needs ⌈C ÷ L⌉ passes. A loop that is passed twice is a loop of twice the ops: jobs are
unrolled, everything that knows common cycles serves them as they are, and the timeline is folded
back. Only cycles that are a multiple of some job's limit need a look: between two of those nobody
needs another pass, and the longest cycle has most room.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from solver.bounds import cycle_limit_ticks, least_switch_ticks
from solver.placement.pairs import Flags
from solver.plan import Timeline
from solver.problem import Job, Problem
from solver.timeline import greedy_timeline, keeps_limits

WHOLE = 10**12
"""The share of a group that is the whole of it."""
MAX_UNROLLED_OPS = 40
"""Ops in a cycle up to which a timeline of several passes is built; building is cubic in them."""


def pass_counts(jobs: Sequence[Job], most: int) -> Iterator[tuple[int, ...]]:
    """Numbers of passes with which load and chain allow a cycle within all limits, fewest first.

    Parameters
    ----------
    jobs
        Jobs that shall share a group.
    most
        Most passes of one job.
    """
    switches = sum(least_switch_ticks(job) for job in jobs) if len(jobs) > 1 else 0
    seen = set()
    for cycle in sorted({count * job.limit_ticks for job in jobs for count in range(1, most + 1)}):
        counts = tuple(-(-cycle // job.limit_ticks) for job in jobs)
        if max(counts) > most or counts in seen:
            continue
        seen.add(counts)
        pairs = list(zip(jobs, counts, strict=True))
        load = switches + sum(job.busy_ticks * count for job, count in pairs)
        longest = max(job.alone_ticks * count for job, count in pairs)
        if max(load, longest) <= min(job.limit_ticks * count for job, count in pairs):
            yield counts


def repeated_timeline(group: str, jobs: Sequence[Job], most: int) -> Timeline | None:
    """A timeline that keeps all limits, with several passes of some jobs; None: none was built."""
    for loops in _unrolled(jobs, most, {}):
        if not keeps_limits(loops):
            continue
        built = greedy_timeline(group, loops)
        if built.cycle_ticks <= cycle_limit_ticks(loops):
            timings = (replace(at, op=at.op.partition(":")[2]) for at in built.timings)
            return Timeline(group, built.cycle_ticks, tuple(timings))
    return None


def pairs_apart(problem: Problem, most: int) -> Flags:
    """Symmetric table over the jobs: whether no timeline of up to `most` passes was built for two.

    Proves nothing: a timeline may have been missed.
    """
    jobs = problem.jobs
    shares = np.array([WHOLE * job.busy_ticks // job.limit_ticks for job in jobs], np.int64)
    memory = np.array([job.memory_bytes for job in jobs], np.int64)
    largest = max(group.memory_bytes for group in problem.groups)
    maybe = (shares[:, None] + shares <= WHOLE) & (memory[:, None] <= largest - memory)
    apart: Flags = ~np.eye(len(jobs), dtype=np.bool_)
    known: dict[tuple[str, int], Job] = {}
    for one, other in np.argwhere(np.triu(maybe, 1)).tolist():
        if any(map(keeps_limits, _unrolled((jobs[one], jobs[other]), most, known))):
            apart[one, other] = apart[other, one] = False
    return apart


def _unrolled(
    jobs: Sequence[Job], most: int, known: dict[tuple[str, int], Job]
) -> Iterator[tuple[Job, ...]]:
    """Jobs whose loop is several passes long, for every number of passes worth a timeline."""
    for counts in pass_counts(jobs, most):
        num_ops = sum(len(job.ops) * count for job, count in zip(jobs, counts, strict=True))
        if num_ops <= MAX_UNROLLED_OPS:
            yield tuple(_loop(job, count, known) for job, count in zip(jobs, counts, strict=True))


def _loop(job: Job, count: int, known: dict[tuple[str, int], Job]) -> Job:
    if (job.id, count) not in known:
        ops = (replace(op, name=f"{turn}:{op.name}") for turn in range(count) for op in job.ops)
        known[job.id, count] = Job(
            job.id, tuple(ops), job.memory_bytes, job.slowdown_limit_permille
        )
    return known[job.id, count]
