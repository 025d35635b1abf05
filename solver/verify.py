"""Checks a plan against its problem, sharing no code with whatever made the plan.

Everything is recomputed from the problem by the shortest way there is, so that a fault in a
model, a heuristic or a file cannot hide.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from solver.plan import Plan, Timeline, Timing
from solver.problem import Group, Job, Op, Problem


@dataclass(frozen=True, slots=True)
class Verification:
    """What a check found."""

    violations: tuple[str, ...] = ()
    """One sentence per broken rule, with the objects and the values."""

    @property
    def is_valid(self) -> bool:
        """Whether no rule is broken."""
        return not self.violations


def verify(problem: Problem, plan: Plan) -> Verification:
    """Check placement, memory, pins, timelines, slowdowns and objective of a plan.

    A plan is valid only for the problem it is checked with; the check never raises for a plan
    that is merely wrong.
    """
    found = [*_placement(problem, plan), *_served_alike(problem, plan)]
    if not found:
        residents: dict[str, list[Job]] = {}
        for job in problem.jobs:
            residents.setdefault(plan.placement[job.id], []).append(job)
        for group in problem.groups:
            found.extend(_residents(residents.get(group.id, []), group))
        for timeline in plan.timelines:
            found.extend(_timeline(problem, timeline))
        lines = {timeline.group: timeline for timeline in plan.timelines}
        for job in problem.jobs:
            home = plan.placement[job.id]
            here = [lines[group] for group in {g for op in job.ops for g in _groups(op, home)}]
            found.extend(_chain(job, here))
        found.extend(_promises(problem, plan))
    return Verification(tuple(found))


def _placement(problem: Problem, plan: Plan) -> Iterator[str]:
    known = {group.id for group in problem.groups}
    jobs = {job.id for job in problem.jobs}
    for job in problem.jobs:
        if job.id not in plan.placement:
            yield f"job {job.id!r} is placed on no group"
    for job_id, group_id in plan.placement.items():
        if job_id not in jobs:
            yield f"job {job_id!r} is placed, but is no job of the problem"
        if group_id not in known:
            yield f"job {job_id!r} is placed on {group_id!r}, which is no group of the problem"


def _served_alike(problem: Problem, plan: Plan) -> Iterator[str]:
    """Every op of a job must be served as often as its first, at least once, on its group only."""
    given: Counter[tuple[str, str, str]] = Counter(
        (timeline.group, timing.job, timing.op)
        for timeline in plan.timelines
        for timing in timeline.timings
    )
    wanted: dict[tuple[str, str, str], int] = {}
    for member in problem.jobs:
        home = plan.placement.get(member.id, "")
        first = member.ops[0]
        passes = given[first.group or home, member.id, first.name]
        wanted |= {
            (group, member.id, op.name): max(passes, 1)
            for op in member.ops
            for group in _groups(op, home)
        }
    for group, job, op in sorted(wanted.keys() | given.keys(), key=str):
        count = given[group, job, op]
        if count != wanted.get((group, job, op), 0):
            yield (
                f"op {op!r} of job {job!r} is served {count} times in the cycle of group "
                f"{group!r}, not {wanted.get((group, job, op), 0)}"
            )


def _residents(here: list[Job], group: Group) -> Iterator[str]:
    needed = sum(job.memory_bytes for job in here)
    if needed > group.memory_bytes:
        yield f"jobs on group {group.id!r} need {needed} bytes; it has {group.memory_bytes}"
    if group.max_jobs is not None and len(here) > group.max_jobs:
        yield f"group {group.id!r} carries {len(here)} jobs; it may carry {group.max_jobs}"
    ids = {job.id for job in here}
    for job in here:
        if job.pinned_group is not None and job.pinned_group != group.id:
            yield f"job {job.id!r} is pinned to {job.pinned_group!r}, but placed on {group.id!r}"
        if job.pool is not None and job.pool != group.pool:
            yield f"job {job.id!r} needs pool {job.pool!r}; group {group.id!r} is of {group.pool!r}"
        for other in ids.intersection(job.forbids):
            yield f"job {job.id!r} forbids job {other!r}; both are placed on {group.id!r}"


def _timeline(problem: Problem, timeline: Timeline) -> Iterator[str]:
    for timing in timeline.timings:
        if not 0 <= timing.start_ticks < timeline.cycle_ticks:
            yield (
                f"op {timing.op!r} of job {timing.job!r} starts at {timing.start_ticks}, outside "
                f"the cycle of {timeline.cycle_ticks} ticks of group {timeline.group!r}"
            )
    yield from _exclusive(problem, timeline)


def _chain(job: Job, timelines: list[Timeline]) -> Iterator[str]:
    """Walk along the job's passes: every op in its turn, after the one before and its wait."""
    cycles = {timeline.group: timeline.cycle_ticks for timeline in timelines}
    if len(set(cycles.values())) > 1:
        yield f"job {job.id!r} is on groups with cycles of {cycles} ticks; it needs them equal"
        return
    cycle = timelines[0].cycle_ticks
    mine = _served(job, timelines)
    if job.ahead_ops:
        yield from _ahead(job, {op: start for start, op in mine}, len(mine), cycle)
        return
    if mine[0][0] >= cycle or mine[0][0] < 0 or mine[0][1] != job.ops[0].name:
        yield (
            f"{mine[0][1]!r} is the first op of job {job.id!r} on {'+'.join(sorted(cycles))!r}, at "
            f"{mine[0][0]}; it must be {job.ops[0].name!r} with wraps 0"
        )
        return
    following = [*mine[1:], (mine[0][0] + cycle, mine[0][1])]
    for index, ((start, _), (next_start, next_op)) in enumerate(zip(mine, following, strict=True)):
        op = job.ops[index % len(job.ops)]
        ready = start + op.duration_ticks + op.wait_ticks
        follower = job.ops[(index + 1) % len(job.ops)].name
        if next_op != follower:
            yield (
                f"op {next_op!r} of job {job.id!r} starts at {next_start}, before "
                f"{follower!r}, which follows {op.name!r}"
            )
            return
        if next_start < ready:
            yield (
                f"op {follower!r} of job {job.id!r} starts at {next_start}, before "
                f"{op.name!r} and its wait end at {ready}"
            )


def _served(job: Job, timelines: list[Timeline]) -> list[tuple[int, str]]:
    """Starts of a job's ops; what holds several groups starts on all of them at once, and is one.

    One that does not is two, and follows itself.
    """
    return sorted(
        {
            (timing.wraps * timeline.cycle_ticks + timing.start_ticks, timing.op)
            for timeline in timelines
            for timing in timeline.timings
            if timing.job == job.id
        }
    )


def _ahead(job: Job, starts: dict[str, int], count: int, cycle: int) -> Iterator[str]:
    """The same where ops run ahead: each part after itself, and all after a pass further back."""
    if count != len(job.ops) or not 0 <= starts[job.ops[0].name] < cycle:
        yield (
            f"job {job.id!r}, whose ops run ahead, has {count} ops in a cycle, the first one at "
            f"{starts[job.ops[0].name]}; it must have {len(job.ops)} and begin in the cycle"
        )
        return
    last, part = len(job.ops) - 1, job.ahead_ops
    turns = [(at, at + 1, 0) for at in range(last)]
    turns += [(last, 0, 1 + job.staleness), (part - 1, 0, 1), (last, part, 1)]
    for before, after, cycles in turns:
        op, follower = job.ops[before], job.ops[after]
        ready = starts[op.name] + op.duration_ticks + op.wait_ticks
        start = starts[follower.name] + cycles * cycle
        if start < ready:
            yield (
                f"op {follower.name!r} of job {job.id!r} starts at {start}, before {op.name!r} and "
                f"its wait end at {ready}"
            )


def _exclusive(problem: Problem, timeline: Timeline) -> Iterator[str]:
    """Walk once round the cycle: each op must find the group free, switch included."""
    cycle = timeline.cycle_ticks
    ordered = sorted(timeline.timings, key=lambda timing: timing.start_ticks)
    for index, timing in enumerate(ordered):
        before = ordered[index - 1]
        began = before.start_ticks - (cycle if index == 0 else 0)
        free_from = began + _duration(problem, before)
        switch = _switch(problem, timing) if before.job != timing.job else 0
        if timing.start_ticks - switch < free_from:
            yield (
                f"op {timing.op!r} of job {timing.job!r} occupies group {timeline.group!r} from "
                f"{timing.start_ticks - switch} (switch of {switch} included), while "
                f"{before.op!r} of job {before.job!r} holds it until {free_from}"
            )


def _promises(problem: Problem, plan: Plan) -> Iterator[str]:
    cycles = {timeline.group: timeline.cycle_ticks for timeline in plan.timelines}
    firsts = {job.id: job.ops[0] for job in problem.jobs}
    passes = Counter(
        timing.job
        for timeline in plan.timelines
        for timing in timeline.timings
        if timing.op == firsts[timing.job].name
        and timeline.group == (firsts[timing.job].group or plan.placement[timing.job])
    )
    for job in problem.jobs:
        cycle = cycles[plan.placement[job.id]]
        alone = passes[job.id] * _alone(job)
        slowdown = -(-cycle * 1000 // alone)
        if plan.slowdowns_permille.get(job.id) != slowdown:
            yield (
                f"slowdown of job {job.id!r} is given as {plan.slowdowns_permille.get(job.id)} "
                f"permille; {cycle} ticks over {alone} alone are {slowdown}"
            )
        if cycle * 1000 > job.slowdown_limit_permille * alone:
            yield (
                f"job {job.id!r} is slowed to {slowdown} permille; its limit is "
                f"{job.slowdown_limit_permille}"
            )
    extra = set(plan.slowdowns_permille) - {job.id for job in problem.jobs}
    for job_id in sorted(extra):
        yield f"a slowdown is given for {job_id!r}, which is no job of the problem"
    prices = {group.id: group.price for group in problem.groups}
    objective = sum(prices[group] * cycle for group, cycle in cycles.items())
    if plan.objective_ticks != objective:
        yield f"objective is given as {plan.objective_ticks}; the timelines make it {objective}"


def _alone(job: Job) -> int:
    """Ticks of an iteration alone: the longer part where ops run ahead, or a share of the whole."""
    ahead = rest = 0
    for index, op in enumerate(job.ops):
        if index < job.ahead_ops:
            ahead += op.duration_ticks + op.wait_ticks
        else:
            rest += op.duration_ticks + op.wait_ticks
    return max(ahead, rest, -(-(ahead + rest) // (job.staleness + 1)))


def _groups(op: Op, home: str) -> tuple[str, ...]:
    return (op.group or home, *op.also)


def _duration(problem: Problem, timing: Timing) -> int:
    ops = problem.job(timing.job).ops
    return next(op.duration_ticks for op in ops if op.name == timing.op)


def _switch(problem: Problem, timing: Timing) -> int:
    ops = problem.job(timing.job).ops
    return next(op.switch_ticks for op in ops if op.name == timing.op)
