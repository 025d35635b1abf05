"""A cyclic timeline for the jobs of one group in milliseconds, without any solver.

Also for those of several groups that repeat one cycle together. Jobs are cut into blocks (ops that
keep the group between them, where holding it is no dearer than switching away and back), and blocks
are put round the cycle at the earliest place where they fit. The shortest conceivable cycle is
tried first, in several orders of the jobs.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, permutations

from solver.bounds import cycle_floor_ticks, cycle_limit_ticks
from solver.errors import PlanError
from solver.linked import Places, parted, places_of
from solver.plan import Plan, Timeline, Timing
from solver.problem import Job, Problem

MAX_FITTED_BLOCKS = 64
"""Above this many blocks on a group only the linear-time timeline is built: fitting is cubic."""
MAX_PERMUTED_JOBS = 4
"""Up to this many jobs all orders are tried (24); above, a handful of sorted ones."""
NUM_BISECTIONS = 10
"""Cycle lengths tried between the floor and the linear-time timeline: within 0.1 % of the range."""

NUM_ROUNDS = 4
"""Rounds of the cycle laid out for fitting: a loop begins in the first and closes by the third."""


@dataclass(frozen=True, slots=True)
class _Block:
    """Ops of one job that keep the group from the first's start to the last's end."""

    groups: Places
    """Groups it keeps."""
    first: int
    """Index of its first op in the job."""
    offsets: tuple[int, ...]
    """Start of each op, from the start of the block, in ticks."""
    duration_ticks: int
    wait_ticks: int
    switch_ticks: int


@dataclass(frozen=True, slots=True)
class _Loop:
    """A job as blocks; the first block need not hold the job's first op."""

    job: Job
    blocks: tuple[_Block, ...]

    @property
    def num_ahead(self) -> int:
        """Blocks of the ops that may run ahead."""
        return sum(block.first < self.job.ahead_ops for block in self.blocks)


def greedy_timeline(group: str, jobs: Sequence[Job]) -> Timeline:
    """Build a valid timeline with a short cycle, within the slowdown limits if that is found.

    Deterministic. It is optimal where its cycle equals `bounds.cycle_floor_ticks`; the caller
    checks the limits.
    """
    if len(jobs) == 1:
        return _alone(group, jobs[0])
    loops = _loops(jobs)
    best_cycle, best = _in_rounds(loops)
    if _may_fit(loops):
        limit = cycle_limit_ticks(jobs)
        if best_cycle > limit and (found := _fit_any_order(loops, limit)) is not None:
            best_cycle, best = limit, found
        cycle = low = cycle_floor_ticks(jobs)
        for _ in range(NUM_BISECTIONS):
            if cycle >= best_cycle:
                break
            found = _fit_any_order(loops, cycle)
            if found is None:
                low = cycle + 1
            else:
                best_cycle, best = cycle, found
            cycle = (low + best_cycle) // 2
    return _timeline(group, best_cycle, loops, best)


def keeps_limits(jobs: Sequence[Job]) -> bool:
    """Whether `greedy_timeline` keeps the slowdown limits of these jobs, found out faster."""
    if len(jobs) == 1:
        return True
    limit = cycle_limit_ticks(jobs)
    loops = _loops(jobs)
    if _in_rounds(loops)[0] <= limit:
        return True
    return _may_fit(loops) and _fit_any_order(loops, limit) is not None


def _may_fit(loops: Sequence[_Loop]) -> bool:
    return sum(len(loop.blocks) for loop in loops) <= MAX_FITTED_BLOCKS


def plan_of(problem: Problem, timelines: Sequence[Timeline]) -> Plan:
    """The plan that timelines make up, with its slowdowns and objective.

    Raises
    ------
    PlanError
        The timelines leave a job out.
    """
    timelines = [part for timeline in timelines for part in parted(problem, timeline)]
    placement = {
        timing.job: timeline.group for timeline in timelines for timing in timeline.timings
    }
    for job in problem.jobs:
        if job.id not in placement:
            raise PlanError(f"no timeline serves job {job.id!r}; the plan is for another problem")
        if job.is_spread and job.pinned_group is not None:
            placement[job.id] = job.pinned_group
    cycles = {timeline.group: timeline.cycle_ticks for timeline in timelines}
    passes = {job: count for entry in timelines for job, count in entry.passes.items()}
    return Plan(
        placement={job.id: placement[job.id] for job in problem.jobs},
        timelines=tuple(timelines),
        slowdowns_permille={
            job.id: -(-1000 * cycles[placement[job.id]] // (job.alone_ticks * passes[job.id]))
            for job in problem.jobs
        },
        objective_ticks=sum(problem.group(group).price * cycle for group, cycle in cycles.items()),
    )


def _alone(group: str, job: Job) -> Timeline:
    now = 0
    cycle = job.alone_ticks
    timings = []
    for op in job.ops:
        timings.append(Timing(job.id, op.name, now % cycle, now // cycle))
        now += op.duration_ticks + op.wait_ticks
    return Timeline(group, cycle, tuple(timings))


def _loops(jobs: Sequence[Job]) -> list[_Loop]:
    places = places_of(jobs)
    rows = [[places[job.id, op.name] for op in job.ops] for job in jobs]
    users = Counter(group for row in rows for group in set(chain.from_iterable(row)))
    shared = {group for group, count in users.items() if count > 1}
    return [_loop(job, row, shared) for job, row in zip(jobs, rows, strict=True)]


def _loop(job: Job, groups: Sequence[Places], shared: Container[str | None]) -> _Loop:
    """Cut a job's loop where switching away gains most, and wherever it gains at all.

    It is cut too where it goes to another group, and where what may run ahead begins and ends.
    """
    count = len(job.ops)
    gains = [job.ops[at - 1].wait_ticks - job.ops[at].switch_ticks for at in range(count)]
    is_cut = [
        gains[at] > 0 or groups[at] != groups[at - 1] or 0 < at == job.ahead_ops
        for at in range(count)
    ]
    first = 0 if job.ahead_ops else max(range(count), key=lambda at: (is_cut[at], gains[at], -at))
    cuts = [first] + [at % count for at in range(first + 1, first + count) if is_cut[at % count]]
    lengths = [
        (cuts[(index + 1) % len(cuts)] - cut - 1) % count + 1 for index, cut in enumerate(cuts)
    ]
    # A group that no other job uses always has the job's state.
    blocks = (
        _block(job, groups[first], first, length, is_shared=any(g in shared for g in groups[first]))
        for first, length in zip(cuts, lengths, strict=True)
    )
    return _Loop(job, tuple(blocks))


def _block(job: Job, groups: Places, first: int, length: int, *, is_shared: bool) -> _Block:
    offsets = []
    now = 0
    for index in range(first, first + length):
        op = job.ops[index % len(job.ops)]
        offsets.append(now)
        now += op.duration_ticks + op.wait_ticks
    switch = job.ops[first].switch_ticks if is_shared else 0
    return _Block(groups, first, tuple(offsets), now - op.wait_ticks, op.wait_ticks, switch)


def _in_rounds(loops: Sequence[_Loop]) -> tuple[int, list[list[int]]]:
    """Serve the first block of every job, then the second …: linear time, always valid."""
    starts: list[list[int]] = [[] for _ in loops]
    ready = [0] * len(loops)
    now: Counter[str | None] = Counter()
    for turn in range(max(len(loop.blocks) for loop in loops)):
        for index, loop in enumerate(loops):
            if turn < len(loop.blocks):
                block = loop.blocks[turn]
                free = max(now[group] for group in block.groups)
                start = max(free + block.switch_ticks, ready[index])
                starts[index].append(start)
                now |= dict.fromkeys(block.groups, start + block.duration_ticks)
                ready[index] = start + block.duration_ticks + block.wait_ticks
    cycle = max(*now.values(), *(end - mine[0] for end, mine in zip(ready, starts, strict=True)))
    return cycle, starts


def _orders(loops: Sequence[_Loop]) -> Iterator[tuple[int, ...]]:
    indices = range(len(loops))
    if len(loops) <= MAX_PERMUTED_JOBS:
        yield from permutations(indices)
        return
    jobs = [loop.job for loop in loops]
    yield tuple(sorted(indices, key=lambda at: -jobs[at].alone_ticks))
    yield tuple(sorted(indices, key=lambda at: -jobs[at].busy_ticks))
    yield tuple(sorted(indices, key=lambda at: (-len(loops[at].blocks), -jobs[at].alone_ticks)))
    yield tuple(indices)


def _fit_any_order(loops: Sequence[_Loop], cycle: int) -> list[list[int]] | None:
    return next(
        (
            found
            for order in _orders(loops)
            if (found := _fit_in_order(loops, order, cycle)) is not None
        ),
        None,
    )


def _fit_in_order(
    loops: Sequence[_Loop], order: Sequence[int], cycle: int
) -> list[list[int]] | None:
    busy: dict[str | None, list[tuple[int, int]]] = {}
    starts: list[list[int]] = [[] for _ in loops]
    for index in order:
        found = _fit_loop(loops[index], busy, cycle)
        if found is None:
            return None
        starts[index] = found
        for start, block in zip(found, loops[index].blocks, strict=True):
            begin = (start - block.switch_ticks) % cycle
            end = begin + block.switch_ticks + block.duration_ticks
            for group in block.groups:
                busy.setdefault(group, []).append((begin, end))
    return starts


def _fit_loop(
    loop: _Loop, busy: Mapping[str | None, Sequence[tuple[int, int]]], cycle: int
) -> list[int] | None:
    """Starts of a job's blocks with the least span, its first block right after another one."""
    num_rounds = NUM_ROUNDS + loop.job.staleness
    rounds = {
        groups: _merged(
            (start + shift, end + shift)
            for group in groups
            for start, end in busy.get(group, ())
            for shift in range(-cycle, num_rounds * cycle, cycle)
        )
        for groups in {block.groups for block in loop.blocks}
    }
    best: list[int] | None = None
    first = loop.blocks[0].groups
    ends = {end % cycle for group in first for _, end in busy.get(group, ())}
    for after in sorted(ends or {0}):
        starts = _chain_from(after, loop, rounds, cycle)
        if starts is not None and (best is None or _span(loop, starts) < _span(loop, best)):
            best = starts
    return best


def _chain_from(
    after: int, loop: _Loop, rounds: Mapping[Places, Sequence[tuple[int, int]]], cycle: int
) -> list[int] | None:
    """Starts of a job's blocks, each at the earliest, or None if the loop does not close."""
    starts: list[int] = []
    earliest = after
    for block in loop.blocks:
        length = block.switch_ticks + block.duration_ticks
        begin = _earliest_fit(rounds[block.groups], earliest, length)
        if begin + length > after + (2 + loop.job.staleness) * cycle:
            return None
        starts.append(begin + block.switch_ticks)
        following = loop.blocks[len(starts) % len(loop.blocks)]
        earliest = _free_for(block, starts[-1], following)
    return starts if _closes(loop, starts, cycle) else None


def _closes(loop: _Loop, starts: Sequence[int], cycle: int) -> bool:
    """Whether the passes that come after this one can begin in their cycles."""
    rest = loop.num_ahead
    last = len(starts) - 1
    turns = [(last, 0, 1 + loop.job.staleness)]
    if rest:
        # Each part goes round by itself too.
        turns += [(rest - 1, 0, 1), (last, rest, 1)]
    return all(
        _free_for(loop.blocks[before], starts[before], loop.blocks[after])
        <= starts[after] - loop.blocks[after].switch_ticks + cycles * cycle
        for before, after, cycles in turns
    )


def _free_for(block: _Block, start: int, following: _Block) -> int:
    """Tick from which a block may occupy its group after another one of its job."""
    end = start + block.duration_ticks
    return max(end, end + block.wait_ticks - following.switch_ticks)


def _span(loop: _Loop, starts: Sequence[int]) -> int:
    last = loop.blocks[-1]
    return starts[-1] + last.duration_ticks + last.wait_ticks - starts[0]


def _merged(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Occupations in order, those that overlap as one: groups are held together."""
    found: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if found and start < found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], end))
        else:
            found.append((start, end))
    return found


def _earliest_fit(rounds: Sequence[tuple[int, int]], earliest: int, length: int) -> int:
    """First tick from `earliest` on with `length` free ticks between the sorted occupations."""
    begin = earliest
    first = bisect_left(rounds, (earliest, 0))
    for start, end in rounds[max(first - 1, 0) :]:
        if start >= begin + length:
            break
        begin = max(begin, end)
    return begin


def _timeline(
    group: str, cycle: int, loops: Sequence[_Loop], starts: Sequence[Sequence[int]]
) -> Timeline:
    timings: list[Timing] = []
    for loop, mine in zip(loops, starts, strict=True):
        count = len(loop.job.ops)
        absolute = [0] * count
        for block, start in zip(loop.blocks, mine, strict=True):
            for step, offset in enumerate(block.offsets):
                index = block.first + step
                # Blocks may begin at a later op than the job: the ops up to the job's last one
                # then close the pass before the one that the rest opens.
                closes = loop.blocks[0].first <= index < count
                absolute[index % count] = start + offset + (cycle if closes else 0)
        anchor = absolute[0] // cycle
        timings.extend(
            Timing(loop.job.id, op.name, at % cycle, at // cycle - anchor)
            for op, at in zip(loop.job.ops, absolute, strict=True)
        )
    return Timeline(group, cycle, tuple(timings))
