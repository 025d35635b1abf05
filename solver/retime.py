"""A plan for a problem whose lengths have changed: same placement, same orders, new times."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from solver.errors import PlanError
from solver.plan import Plan, Timeline, Timing
from solver.problem import Job, Op, Problem
from solver.timeline import plan_of


@dataclass(frozen=True, slots=True)
class _Edge:
    """``start[target] >= start[source] + ticks - wraps * cycle``."""

    source: int
    target: int
    ticks: int
    wraps: int


def retime(problem: Problem, plan: Plan) -> Plan:
    """Give each group of a plan the shortest cycle in which its order can be served.

    The starts are the earliest ones: longest paths from the first op of the order. A longer cycle
    only relaxes the constraints, so the shortest is found by bisection.

    Parameters
    ----------
    problem
        Its jobs have the plan's ops; lengths may differ. Slowdown limits and memory are not
        looked at: `solver.verify` does that.

    Raises
    ------
    PlanError
        The plan serves other jobs or ops, or no cycle length lets the order be served.
    """
    return plan_of(problem, [_retimed(problem, timeline) for timeline in plan.timelines])


def _retimed(problem: Problem, timeline: Timeline) -> Timeline:
    jobs = {job.id: job for job in problem.jobs}
    for name in dict.fromkeys(timing.job for timing in timeline.timings):
        served = {timing.op for timing in timeline.timings if timing.job == name}
        known = {op.name for op in jobs[name].ops} if name in jobs else set()
        if served != known:
            raise PlanError(
                f"group {timeline.group!r} serves {sorted(served)} of job {name!r}; the problem "
                f"has {sorted(known) or 'no such job'}: plan anew"
            )
    edges = [*_order_edges(timeline, jobs), *_chain_edges(timeline, jobs)]
    high = sum(
        op.duration_ticks + op.wait_ticks + op.switch_ticks
        for op in (_op(jobs, timing) for timing in timeline.timings)
    )
    starts = _starts(edges, len(timeline.timings), high)
    if starts is None:
        raise PlanError(
            f"the order of group {timeline.group!r} cannot be served in a cycle of any length; "
            "plan anew"
        )
    low = 1
    while low < high:
        middle = (low + high) // 2
        found = _starts(edges, len(timeline.timings), middle)
        if found is None:
            low = middle + 1
        else:
            high, starts = middle, found
    return Timeline(
        timeline.group,
        high,
        tuple(
            Timing(timing.job, timing.op, start, timing.wraps)
            for timing, start in zip(timeline.timings, starts, strict=True)
        ),
    )


def _order_edges(timeline: Timeline, jobs: dict[str, Job]) -> Iterator[_Edge]:
    """Each op waits for the one before it in the order, and its switch; the first for the last."""
    timings = timeline.timings
    for index, timing in enumerate(timings):
        before = timings[index - 1]
        is_switch = before.job != timing.job
        switch = _op(jobs, timing).switch_ticks if is_switch else 0
        source = (index - 1) % len(timings)
        ticks = _op(jobs, before).duration_ticks + switch
        yield _Edge(source, index, ticks, int(index == 0))


def _chain_edges(timeline: Timeline, jobs: dict[str, Job]) -> Iterator[_Edge]:
    """Each op waits for the one before it in its job's passes, and that one's wait."""
    timings = timeline.timings
    for name in dict.fromkeys(timing.job for timing in timings):
        mine = sorted(
            (index for index, timing in enumerate(timings) if timing.job == name),
            key=lambda index: (timings[index].wraps, index),
        )
        for step, (source, target) in enumerate(zip(mine, [*mine[1:], mine[0]], strict=True)):
            op = _op(jobs, timings[source])
            is_closing = step == len(mine) - 1
            wraps = timings[target].wraps + is_closing - timings[source].wraps
            yield _Edge(source, target, op.duration_ticks + op.wait_ticks, wraps)


def _op(jobs: dict[str, Job], timing: Timing) -> Op:
    return next(op for op in jobs[timing.job].ops if op.name == timing.op)


def _starts(edges: Sequence[_Edge], num: int, cycle: int) -> list[int] | None:
    """Earliest starts in a cycle of this length, the first op at 0; None if there are none."""
    starts = [0] * num
    for _ in range(num + 1):
        is_settled = True
        for edge in edges:
            earliest = starts[edge.source] + edge.ticks - edge.wraps * cycle
            if earliest > starts[edge.target]:
                starts[edge.target] = earliest
                is_settled = False
        if is_settled:
            # A start pushed beyond the cycle would belong to the next round.
            return starts if starts[0] == 0 and max(starts) < cycle else None
    return None
