"""What a plan looks like: bars of its cycles, gaps of its jobs and who fills them, overlaps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from solver.plan import Plan, Timeline
from solver.problem import Problem

Span = tuple[int, int]
"""Start and end in ticks within a cycle, start before end."""


@dataclass(frozen=True, slots=True)
class Bar:
    """One stretch of a group's cycle; what wraps round its end is two bars."""

    group: str
    job: str
    op: str
    start_ticks: int
    end_ticks: int
    is_switch: bool
    """Whether the job's state is brought in, rather than its op run."""


@dataclass(frozen=True, slots=True)
class Gap:
    """A stretch of the cycle in which a job does not hold its group."""

    group: str
    job: str
    after_op: str
    start_ticks: int
    length_ticks: int
    filled: tuple[tuple[str, int], ...]
    """Other jobs and the ticks they hold the group in it, most first."""

    @property
    def filled_ticks(self) -> int:
        """Ticks of it in which another job holds the group."""
        return sum(ticks for _, ticks in self.filled)


@dataclass(frozen=True, slots=True)
class Load:
    """One group of a plan."""

    group: str
    jobs: tuple[str, ...]
    cycle_ticks: int
    busy_ticks: int
    """Ticks of the cycle in which ops run."""
    switch_ticks: int

    @property
    def busy_share(self) -> float:
        """Share of the cycle in which ops run."""
        return self.busy_ticks / self.cycle_ticks


def bars(problem: Problem, plan: Plan) -> tuple[Bar, ...]:
    """Every op and switch of one cycle of each group, by group and start."""
    return tuple(bar for timeline in plan.timelines for bar in _timeline_bars(problem, timeline))


def loads(problem: Problem, plan: Plan) -> tuple[Load, ...]:
    """How full each group is."""
    found = []
    for timeline in plan.timelines:
        here = tuple(_timeline_bars(problem, timeline))
        busy = sum(_length(bar) for bar in here if not bar.is_switch)
        switches = sum(_length(bar) for bar in here if bar.is_switch)
        jobs = tuple(dict.fromkeys(timing.job for timing in timeline.timings))
        found.append(Load(timeline.group, jobs, timeline.cycle_ticks, busy, switches))
    return tuple(found)


def gaps(problem: Problem, plan: Plan) -> tuple[Gap, ...]:
    """The gaps of every job, and who fills them."""
    return tuple(gap for timeline in plan.timelines for gap in _timeline_gaps(problem, timeline))


def overlaps(problem: Problem, plan: Plan) -> dict[tuple[str, str], float]:
    """(job, other) → share of the job's gaps in which the other holds the group.

    Jobs that share a group well are busy in each other's gaps.
    """
    total: dict[str, int] = {}
    shared: dict[tuple[str, str], int] = {}
    for gap in gaps(problem, plan):
        total[gap.job] = total.get(gap.job, 0) + gap.length_ticks
        for other, ticks in gap.filled:
            shared[gap.job, other] = shared.get((gap.job, other), 0) + ticks
    return {pair: ticks / total[pair[0]] for pair, ticks in shared.items()}


def _timeline_bars(problem: Problem, timeline: Timeline) -> Iterator[Bar]:
    before = timeline.timings[-1].job
    for timing in timeline.timings:
        op = next(op for op in problem.job(timing.job).ops if op.name == timing.op)
        stretches = [(timing.start_ticks, op.duration_ticks, False)]
        if before != timing.job and op.switch_ticks:
            stretches.append((timing.start_ticks - op.switch_ticks, op.switch_ticks, True))
        for start, length, is_switch in stretches:
            for span in _wrapped(start, length, timeline.cycle_ticks):
                yield Bar(timeline.group, timing.job, timing.op, *span, is_switch)
        before = timing.job


def _timeline_gaps(problem: Problem, timeline: Timeline) -> Iterator[Gap]:
    cycle = timeline.cycle_ticks
    held = [bar for bar in _timeline_bars(problem, timeline) if not bar.is_switch]
    for job in dict.fromkeys(timing.job for timing in timeline.timings):
        lengths = {op.name: op.duration_ticks for op in problem.job(job).ops}
        mine = [timing for timing in timeline.timings if timing.job == job]
        for here, following in zip(mine, [*mine[1:], mine[0]], strict=True):
            end = here.start_ticks + lengths[here.op]
            next_start = following.start_ticks + (cycle if following is mine[0] else 0)
            if next_start <= end:
                continue
            spans = list(_wrapped(end, next_start - end, cycle))
            filled: dict[str, int] = {}
            for bar in held:
                ticks = _shared(spans, bar)
                if bar.job != job and ticks:
                    filled[bar.job] = filled.get(bar.job, 0) + ticks
            most = sorted(filled.items(), key=lambda entry: (-entry[1], entry[0]))
            yield Gap(timeline.group, job, here.op, end % cycle, next_start - end, tuple(most))


def _wrapped(start: int, length: int, cycle: int) -> Iterator[Span]:
    start %= cycle
    if start + length <= cycle:
        yield start, start + length
    else:
        yield start, cycle
        yield 0, start + length - cycle


def _shared(spans: Sequence[Span], bar: Bar) -> int:
    return sum(
        max(min(end, bar.end_ticks) - max(start, bar.start_ticks), 0) for start, end in spans
    )


def _length(bar: Bar) -> int:
    return bar.end_ticks - bar.start_ticks
