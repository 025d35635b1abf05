"""A plan for a problem whose lengths have changed: same placement, same orders, new times."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from solver.errors import PlanError
from solver.linked import joined, together
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

    Groups that jobs link get one cycle. The starts are the earliest ones: longest paths from the
    first op of the order. A longer cycle only relaxes the constraints, so the shortest is found by
    bisection.

    Parameters
    ----------
    problem
        Its jobs have the plan's ops; lengths may differ. Slowdown limits and memory are not
        looked at: `solver.verify` does that.

    Raises
    ------
    PlanError
        The plan serves other jobs or ops, or serves them elsewhere, or no cycle length lets the
        order be served.
    """
    return plan_of(problem, [_retimed(problem, lines) for lines in together(problem, plan)])


def _retimed(problem: Problem, lines: Sequence[Timeline]) -> Timeline:
    jobs = {job.id: job for job in problem.jobs}
    timeline = joined(lines)
    _check_ops(jobs, timeline, lines, is_linked=problem.is_linked)
    at = {timing: index for index, timing in enumerate(timeline.timings)}
    edges = [
        *(edge for line in lines for edge in _order_edges(line, at, jobs)),
        *_chain_edges(timeline, jobs),
    ]
    high = sum(
        op.duration_ticks + op.wait_ticks + op.switch_ticks
        for op in (_op(jobs, timing) for timing in timeline.timings)
    )
    starts = _starts(edges, len(at), high)
    if starts is None:
        raise PlanError(
            f"the order of group {timeline.group!r} cannot be served in a cycle of any length; "
            "plan anew"
        )
    low = 1
    while low < high:
        middle = (low + high) // 2
        found = _starts(edges, len(at), middle)
        if found is None:
            low = middle + 1
        else:
            high, starts = middle, found
    return _read(timeline, high, starts, jobs)


def _check_ops(
    jobs: Mapping[str, Job], timeline: Timeline, lines: Sequence[Timeline], *, is_linked: bool
) -> None:
    """Raise PlanError unless exactly the ops that jobs have are served where these run."""
    for name in dict.fromkeys(timing.job for timing in timeline.timings):
        served = {timing.op for timing in timeline.timings if timing.job == name}
        known = {op.name for op in jobs[name].ops} if name in jobs else set()
        if served != known:
            raise PlanError(
                f"group {timeline.group!r} serves {sorted(served)} of job {name!r}; the problem "
                f"has {sorted(known) or 'no such job'}: plan anew"
            )
    places: dict[tuple[str, str], set[str | None]] = {}
    for line in lines if is_linked else ():
        for timing in line.timings:
            places.setdefault((timing.job, timing.op), set()).add(line.group)
    for (name, op_name), groups in places.items():
        job = jobs[name]
        wanted = next(job.groups_of(op) for op in job.ops if op.name == op_name)
        if groups != set(wanted):
            raise PlanError(
                f"op {op_name!r} of job {name!r} is served on {', '.join(sorted(map(str, groups)))}"
                f", and runs on {', '.join(map(str, wanted))}: plan anew"
            )


def _read(
    timeline: Timeline, cycle: int, starts: Sequence[int], jobs: Mapping[str, Job]
) -> Timeline:
    """The timeline that starts make up, the first of them at 0."""
    begins = {
        timing: start - starts[0] + timing.wraps * cycle
        for timing, start in zip(timeline.timings, starts, strict=True)
    }
    anchors: dict[str, int] = {}
    for timing, begin in begins.items():
        if timing.op == jobs[timing.job].ops[0].name:
            anchors[timing.job] = min(begin // cycle, anchors.get(timing.job, begin // cycle))
    return Timeline(
        timeline.group,
        cycle,
        tuple(
            Timing(timing.job, timing.op, begin % cycle, begin // cycle - anchors[timing.job])
            for timing, begin in begins.items()
        ),
    )


def _order_edges(
    timeline: Timeline, at: Mapping[Timing, int], jobs: Mapping[str, Job]
) -> Iterator[_Edge]:
    """Each op waits for the one before it in the order, and its switch; the first for the last."""
    timings = timeline.timings
    for index, timing in enumerate(timings):
        before = timings[index - 1]
        is_switch = before.job != timing.job
        switch = _op(jobs, timing).switch_ticks if is_switch else 0
        ticks = _op(jobs, before).duration_ticks + switch
        yield _Edge(at[before], at[timing], ticks, int(index == 0))


def _chain_edges(timeline: Timeline, jobs: Mapping[str, Job]) -> Iterator[_Edge]:
    """Each op waits for the one before it in its job's passes, and that one's wait."""
    timings = timeline.timings
    for name in dict.fromkeys(timing.job for timing in timings):
        mine = sorted(
            (index for index, timing in enumerate(timings) if timing.job == name),
            key=lambda index: (timings[index].wraps, index),
        )
        for before, after, cycles in _turns(jobs[name], len(mine)):
            source, target = mine[before], mine[after]
            op = _op(jobs, timings[source])
            wraps = timings[target].wraps + cycles - timings[source].wraps
            yield _Edge(source, target, op.duration_ticks + op.wait_ticks, wraps)


def _turns(job: Job, count: int) -> Iterator[tuple[int, int, int]]:
    """Which op of a job waits for which one before it, and of how many cycles ago."""
    last = count - 1
    yield from ((step, step + 1, 0) for step in range(last))
    yield (last, 0, 1 + job.staleness)
    if job.ahead_ops:
        # Each part goes round by itself too.
        yield (job.ahead_ops - 1, 0, 1)
        yield (last, job.ahead_ops, 1)


def _op(jobs: Mapping[str, Job], timing: Timing) -> Op:
    return next(op for op in jobs[timing.job].ops if op.name == timing.op)


def _starts(edges: Sequence[_Edge], num: int, cycle: int) -> list[int] | None:
    """Starts in cycles of this length, each as early as the order allows; None if none are."""
    starts = [0] * num
    for _ in range(num + 1):
        is_settled = True
        for edge in edges:
            earliest = starts[edge.source] + edge.ticks - edge.wraps * cycle
            if earliest > starts[edge.target]:
                starts[edge.target] = earliest
                is_settled = False
        if is_settled:
            return starts
    return None
