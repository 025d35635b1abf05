"""How fast jobs get on that share groups, by simple rules: the planner's quick look.

It tells what `solver.simulate` tells for these rules within a percent, some ten times faster, since
it has no arbiter, no log and no handoff. Plans found with it are confirmed by the simulator.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from solver.dispatch.events import TICKS_PER_S
from solver.dispatch.shortest import fade
from solver.dispatch.yielding import YieldRule
from solver.simulate import Loop, SimJob


class Turn(StrEnum):
    """Whose turn it is on a free group."""

    FIRST_READY = "first_ready"
    SHORTEST_FIRST = "shortest_first"
    """The shortest, unless a job lags by more than it tolerates."""
    SMALLEST_SHARE_FIRST = "smallest_share_first"
    """The one that takes the smallest share of its job's iteration, under the same condition."""


@dataclass(slots=True, eq=False)
class _Step:
    """An op of one iteration that is ready."""

    job: int
    iteration: int
    op: int
    ready: int = 0
    """Tick."""
    is_waiting: bool = True
    """Whether no group serves it yet."""
    served: int = 0
    """Ticks it took in leases it yielded."""
    num_yields: int = 0
    started: int = 0
    """Tick its lease began."""
    swap: int = 0
    """Ticks of that lease until its state was there."""
    ends: int | None = None
    """Tick its lease ends; None while it has none."""


@dataclass(slots=True, eq=False)
class _Station:
    """One group."""

    queue: list[_Step] = field(default_factory=list)
    """Oldest first; those that another group serves by now are dropped when it is looked at."""
    holder: _Step | None = None
    """What it serves."""
    resident: int | None = None
    """Job whose state is there."""
    yield_at: int | None = None
    """Tick at which its holder may have to yield."""


def queue_ends(
    jobs: Sequence[SimJob],
    horizon_s: float | None,
    *,
    turn: Turn = Turn.FIRST_READY,
    is_kept: bool = False,
    tolerances: Sequence[float] = (),
) -> list[list[int]]:
    """Ticks at which the iterations of each job end, up to the horizon.

    Parameters
    ----------
    jobs
        Jobs with tapes; every op on one group, or on any of some.
    horizon_s
        Moment at which to stop; None: when the tapes end.
    turn
        Whose turn it is where several wait.
    is_kept
        Let a job keep its group from one op to the next where it does not wait between them.
    tolerances
        Per job the lag that it tolerates, where the shortest goes first.
    """
    horizon = math.inf if horizon_s is None else horizon_s * TICKS_PER_S
    floor = _Floor(jobs, turn, is_kept, tolerances)
    for index in range(len(jobs)):
        floor.go_on(index, 0)
    events = floor.events
    while events:
        now, _, station, step = heapq.heappop(events)
        if now > horizon:
            break
        if step is None:
            floor.look_again(station, now)
        elif station is None:
            floor.arrive(step, now)
        elif step.ends == now:
            station.holder = None
            following = floor.finish(step, station, now)
            if following is not None:
                floor.serve(station, following, now)
            elif station.queue:
                floor.call_next(station, now)
            if floor.at_once is not None:
                step, floor.at_once = floor.at_once, None
                floor.arrive(step, now)
    return [loop.ends for loop in floor.loops]


class _Floor:
    """All stations and jobs, and what happens next."""

    def __init__(
        self, jobs: Sequence[SimJob], turn: Turn, is_kept: bool, tolerances: Sequence[float]
    ) -> None:
        self.jobs = jobs
        self.loops = [Loop(job) for job in jobs]
        stations = {name: _Station() for job in jobs for op in job.ops for name in op.groups}
        self.places = [[[stations[name] for name in op.groups] for op in j.ops] for j in jobs]
        self.events: list[tuple[int, int, _Station | None, _Step | None]] = []
        """(tick, rank, station, step): a step is ready (no station), its lease ends, or the station
        is looked at again (no step); those of a tick in order of their push."""
        self.at_once: _Step | None = None
        """A step that is ready now, and that nothing else of this tick comes before."""
        self._rank = 0
        self._turn = turn
        self._is_kept = is_kept
        self._tolerances = tolerances
        self._swaps = [[round((op.swap_s or 0.0) * TICKS_PER_S) for op in j.ops] for j in jobs]
        self._copies = [
            [round(op.copy_s * TICKS_PER_S) if op.is_any else 0 for op in j.ops] for j in jobs
        ]
        self._means = [[op.duration_s for op in job.ops] for job in jobs]
        self._ranks = self._means
        if turn is Turn.SMALLEST_SHARE_FIRST:
            alone = [sum(op.duration_s + op.wait_s for op in job.ops) for job in jobs]
            self._ranks = [[m / a for m in row] for row, a in zip(self._means, alone, strict=True)]
        # What yields is set by op, so that where nothing does it costs one look-up.
        self._yields = [[op.is_yieldable for op in job.ops] for job in jobs]
        self._is_yielding = any(any(row) for row in self._yields)
        self._rule = YieldRule()
        self._left: list[tuple[_Station | None, int]] = [(None, 0)] * len(jobs)
        """Per job the group its state was changed on last, and the tick it is on the others."""
        self._waited, self._alone = [0] * len(jobs), [1] * len(jobs)

    def go_on(self, index: int, now: int) -> None:
        """Make ready what may begin of a job."""
        for iteration, op, tick in self.loops[index].startable():
            self._push(max(tick, now), None, _Step(index, iteration, op))

    def arrive(self, step: _Step, now: int) -> None:
        """A step is ready: a free group takes it, rather the one that its job used last."""
        step.ready = now
        free: _Station | None = None
        for station in self.places[step.job][step.op]:
            if station.holder is None and (free is None or station.resident == step.job):
                free = station
        if free is not None:
            self.serve(free, step, now)
            return
        for station in self.places[step.job][step.op]:
            station.queue.append(step)
            if self._is_yielding:
                self._ask_to_yield(station, now)

    def look_again(self, station: _Station | None, now: int) -> None:
        """The moment has come at which the holder may have to yield."""
        if station is not None and station.yield_at == now:
            station.yield_at = None
            self._ask_to_yield(station, now)

    def finish(self, step: _Step, station: _Station, now: int) -> _Step | None:
        """A lease ended: the job's next op is ready after the wait; returned if it goes on here."""
        index, op = step.job, step.op
        if self._copies[index][op]:
            self._left[index] = station, now + self._copies[index][op]
        job = self.jobs[index]
        tick = now + job.tape[step.iteration][op][1]
        if op + 1 == len(job.ops) and not job.ahead_ops:
            # The next iteration begins where this one ends: no need to look for it.
            self.loops[index].ends.append(tick)
            if step.iteration + 1 < job.iterations:
                self._make_ready(_Step(index, step.iteration + 1, 0), tick, now)
            return None
        if self.loops[index].finish(op, tick):
            self.go_on(index, now)
            return None
        following = _Step(index, step.iteration, op + 1, now)
        if self._is_kept and tick == now and station in self.places[index][op + 1]:
            return following
        self._make_ready(following, tick, now)
        return None

    def _make_ready(self, step: _Step, tick: int, now: int) -> None:
        if tick == now and (not self.events or self.events[0][0] > now):
            self.at_once = step
        else:
            self._push(tick, None, step)

    def call_next(self, station: _Station, now: int) -> None:
        """Serve who is next on the free station, if anybody still waits."""
        step = self._next(station, now)
        if step is not None:
            station.queue.remove(step)
            self.serve(station, step, now)

    def serve(self, station: _Station, step: _Step, now: int) -> None:
        """Give the free station to a step."""
        step.is_waiting = False
        index = step.job
        lengths = self.jobs[index].tape[step.iteration][step.op]
        self._waited[index] += now - step.ready
        self._alone[index] += 0 if step.num_yields else sum(lengths)
        swap = self._swaps[index][step.op] if station.resident not in {index, None} else 0
        if self._copies[index][step.op]:
            source, copied = self._left[index]
            swap += max(copied - now, 0) if source not in {station, None} else 0
        station.holder, station.resident = step, index
        step.ends = now + swap + max(lengths[0] - step.served, 1)
        self._push(step.ends, station, step)
        if self._yields[index][step.op]:
            step.started, step.swap = now, swap
            if station.queue:
                self._ask_to_yield(station, now)

    def _ask_to_yield(self, station: _Station, now: int) -> None:
        """Let the next one go first if the rest of the holder is long enough by now."""
        holder, rule = station.holder, self._rule
        if holder is None or not self._yields[holder.job][holder.op]:
            return
        waiting = self._next(station, now)
        if waiting is None or waiting.job == holder.job or holder.num_yields >= rule.max_yields:
            return
        due = rule.moment(
            round(self._means[holder.job][holder.op] * TICKS_PER_S),
            holder.served,
            round(self._means[waiting.job][waiting.op] * TICKS_PER_S)
            + self._swaps[holder.job][holder.op],
            started=holder.started,
            now=now,
        )
        if due > now:
            if station.yield_at != due:
                station.yield_at = due
                self._push(due, station, None)
            return
        holder.ends = None
        served = holder.served + max(now - holder.started - holder.swap, 0)
        rest = _Step(holder.job, holder.iteration, holder.op, now, True, served)
        rest.num_yields = holder.num_yields + 1
        station.queue.remove(waiting)
        station.queue.append(rest)
        self.serve(station, waiting, now)

    def _next(self, station: _Station, now: int) -> _Step | None:
        """Who is next, if anybody still waits."""
        station.queue = queue = [step for step in station.queue if step.is_waiting]
        if not queue:
            return None
        first = queue[0]
        if len(queue) > 1 and self._turn is not Turn.FIRST_READY:
            most = self._claim(first, now)
            for step in queue:
                if (claim := self._claim(step, now)) > most:
                    first, most = step, claim
        return first

    def _claim(self, step: _Step, now: int) -> tuple[float, float]:
        lag = (self._waited[step.job] + now - step.ready) / self._alone[step.job]
        tolerance = self._tolerances[step.job]
        if lag > tolerance:
            return lag / tolerance, 0.0
        return 0.0, -self._ranks[step.job][step.op] * fade(lag, tolerance)

    def _push(self, tick: int, station: _Station | None, step: _Step | None) -> None:
        self._rank += 1
        heapq.heappush(self.events, (tick, self._rank, station, step))
