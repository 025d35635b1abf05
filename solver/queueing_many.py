"""The quick look at many cells at once: the events of all of them are taken in step, as arrays.

It tells what `solver.queueing` tells, except where events of a cell meet in one tick, of jobs whose
rollouts neither run ahead nor yield, and whose ops hold one group at a time.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from solver.dispatch.events import TICKS_PER_S
from solver.dispatch.shortest import fade
from solver.queueing import Turn
from solver.simulate import SimJob

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
NEVER = np.iinfo(np.int64).max // 4
"""Tick at which nothing happens."""
IN_DANGER = 1e9
"""Claim above all others: of a job that lags by more than it tolerates."""
MOST_AT_ONCE = 2_000
"""Cells that are taken in step; more at once gain nothing."""
MOST_GROUPS = 48
"""Groups of a cell at most: each is a bit of a number that a float holds exactly."""
LEAST_LIVE = 0.75
"""Share of the cells under way below which those that have ended are dropped."""
STEPS_BETWEEN = 32
"""Steps from one look at that share to the next."""


@dataclass(frozen=True, slots=True)
class Meeting:
    """The jobs of one cell, and how long to look at them."""

    jobs: Sequence[SimJob]
    """Jobs with tapes."""
    horizon_s: float
    tolerances: Sequence[float]
    """Per job the lag that it tolerates, where the shortest goes first."""


def is_plain(jobs: Sequence[SimJob]) -> bool:
    """Whether jobs of a cell are such as can be looked at here."""
    return len(
        {name for job in jobs for op in job.ops for name in op.groups}
    ) <= MOST_GROUPS and all(
        not job.staleness
        and not any(op.is_yieldable or (len(op.groups) > 1 and not op.is_any) for op in job.ops)
        for job in jobs
    )


def queue_ends_many(
    meetings: Sequence[Meeting], *, turn: Turn = Turn.FIRST_READY, is_kept: bool = False
) -> list[list[tuple[int, int]]]:
    """Per cell and job how many iterations it ends up to the horizon, and the tick of the last end.

    Parameters
    ----------
    meetings
        Cells of plain jobs (`is_plain`).
    turn
        Whose turn it is where several wait.
    is_kept
        Let a job keep its group from one op to the next where it does not wait between them.
    """
    found: list[list[tuple[int, int]]] = []
    for start in range(0, len(meetings), MOST_AT_ONCE):
        part = meetings[start : start + MOST_AT_ONCE]
        floors = _Floors(part, turn, is_kept=is_kept)
        floors.run()
        found += [
            list(zip(counts, lasts, strict=True))[: len(meeting.jobs)]
            for meeting, counts, lasts in zip(
                part, floors.counts.tolist(), floors.lasts.tolist(), strict=True
            )
        ]
    return found


class _Tapes:
    """Lengths of all ops of some jobs, one job after the other."""

    def __init__(self) -> None:
        self._starts: dict[int, int] = {}
        self._parts: list[Ints] = []
        self._size = 0

    def start_of(self, job: SimJob) -> int:
        """Where the ops of a job begin."""
        start = self._starts.get(id(job.tape))
        if start is None:
            part = np.array(job.tape, dtype=np.int64).reshape(-1, 2)
            start = self._starts[id(job.tape)] = self._size
            self._parts.append(part)
            self._size += len(part)
        return start

    def joined(self) -> tuple[Ints, Ints]:
        """Ticks of the leases, and of the waits after them."""
        both = np.concatenate(self._parts)
        return np.ascontiguousarray(both[:, 0]), np.ascontiguousarray(both[:, 1])


def _groups_of(jobs: Iterable[SimJob]) -> dict[str, int]:
    """The groups of a cell by number: those of a kind in the order in which jobs name them."""
    names = {name for job in jobs for op in job.ops for name in op.groups}
    return {name: n for n, name in enumerate(sorted(names, key=lambda name: (len(name), name)))}


def _rows_of(job: SimJob, groups: Mapping[str, int], *, is_share: bool) -> list[list[float]]:
    """Per op the ticks of a switch and of a copy, its rank, and its groups as bits."""
    alone_s = sum(op.duration_s + op.wait_s for op in job.ops) if is_share else 1.0
    rows = []
    for op in job.ops:
        bits = sum(1 << groups[name] for name in op.groups)
        swap, copy = ((op.swap_s or 0.0) * TICKS_PER_S, op.copy_s * TICKS_PER_S * op.is_any)
        rows.append([round(swap), round(copy), op.duration_s / alone_s, bits])
    return rows


def _padded(rows: list[Any], width: int, fill: object) -> list[Any]:
    return rows + [fill] * (width - len(rows))


class _Floors:
    """Cells taken in step: arrays have a row per cell, then a column per job or per group.

    Rows are as wide as the widest; what fills them up never comes into play.
    """

    _CHANGING = (
        *("cell", "horizon", "start", "last_pass", "size", "tolerance", "swap", "copy", "rank"),
        *("place", "tick", "ready", "waited", "alone", "at_pass", "op", "group", "left"),
        *("left_tick", "is_waiting", "here", "weight", "is_free", "resident"),
    )
    """Arrays that lose the rows of cells that have ended."""

    def __init__(self, meetings: Sequence[Meeting], turn: Turn, *, is_kept: bool) -> None:
        self._is_first_ready = turn is Turn.FIRST_READY
        self._is_kept = is_kept
        self._read(meetings, is_share=turn is Turn.SMALLEST_SHARE_FIRST)
        shape = self.size.shape
        self.counts: Ints = np.zeros(shape, dtype=np.int64)
        """Iterations that jobs have ended."""
        self.lasts: Ints = np.zeros(shape, dtype=np.int64)
        """Ticks of the last ends."""
        self._begin(shape)

    def _read(self, meetings: Sequence[Meeting], *, is_share: bool) -> None:
        """Everything that does not change."""
        self.horizon: Ints = np.array(
            [int(meeting.horizon_s * TICKS_PER_S) for meeting in meetings], dtype=np.int64
        )
        tapes = _Tapes()
        width = max(len(meeting.jobs) for meeting in meetings)
        depth = max(len(job.ops) for meeting in meetings for job in meeting.jobs)
        no_op = [0, 0, 1.0, 0]
        no_job = [no_op] * depth, (0, 0, 1), math.inf
        ops, places, patience, num_groups = [], [], [], 1
        for meeting in meetings:
            groups = _groups_of(meeting.jobs)
            rows = [_rows_of(job, groups, is_share=is_share) for job in meeting.jobs]
            num_groups = max(num_groups, len(groups))
            ops.append(_padded([_padded(row, depth, no_op) for row in rows], width, no_job[0]))
            here = [(tapes.start_of(j), len(j.tape) - 1, len(j.ops)) for j in meeting.jobs]
            places.append(_padded(list(here), width, no_job[1]))
            tolerances = meeting.tolerances or [math.inf] * len(meeting.jobs)
            patience.append(_padded(list(tolerances), width, no_job[2]))
        self.leases, self.waits = tapes.joined()
        self.num_groups = num_groups
        self.tolerance: Floats = np.array(patience)
        self._read_ops(np.array(ops, dtype=np.float64))
        self.start, self.last_pass, self.size = (
            np.ascontiguousarray(part) for part in np.moveaxis(np.array(places), 2, 0)
        )

    def _read_ops(self, ops: Floats) -> None:
        """What does not change of each op of each job of each cell."""
        swap, copy, rank, bits = np.moveaxis(ops, 3, 0)
        self.swap: Ints = swap.astype(np.int64)
        self.copy: Ints = copy.astype(np.int64)
        self.rank: Floats = np.ascontiguousarray(rank)
        masks = bits.astype(np.int64)[..., None] >> np.arange(self.num_groups)
        self.place: Flags = (masks & 1).astype(np.bool_)

    def _begin(self, shape: tuple[int, ...]) -> None:
        """Every job asks for its first op."""
        num_cells = shape[0]
        self.cell: Ints = np.arange(num_cells)
        """Cell of a row."""
        self.tick: Ints = np.zeros(shape, dtype=np.int64)
        """Tick of what a job does next: it asks for a group, or gives it back."""
        self.ready, self.waited = self.tick.copy(), self.tick.copy()
        self.alone: Ints = self.tick + 1
        self.at_pass, self.op, self.left_tick = (self.tick.copy() for _ in range(3))
        self.group: Ints = self.tick - 1
        """Group that serves a job; -1: none."""
        self.left: Ints = self.tick - 1
        """Group its state was changed on last; it is on the others at the tick beside it."""
        self.is_waiting: Flags = np.zeros(shape, dtype=np.bool_)
        self.here: Flags = np.ascontiguousarray(self.place[:, :, 0])
        """Groups that may serve its present op."""
        self.weight: Floats = np.ascontiguousarray(self.rank[:, :, 0])
        """What that ranks by."""
        self.is_free: Flags = np.ones((num_cells, self.num_groups), dtype=np.bool_)
        self.resident: Ints = np.full((num_cells, self.num_groups), -1, dtype=np.int64)
        """Job whose state is on a group."""
        self.tick[~self.here.any(axis=2)] = NEVER

    def run(self) -> None:
        """Go on until every cell is at its horizon."""
        num_steps = 0
        while len(self.cell):
            live = self._step()
            num_steps += 1
            if num_steps % STEPS_BETWEEN == 0 and live.mean() < LEAST_LIVE:
                for name in self._CHANGING:
                    setattr(self, name, getattr(self, name)[live])

    def _step(self) -> Flags:
        """The next event of every cell; tells which cells are not at their horizons yet."""
        rows = np.arange(len(self.cell))
        job = self.tick.argmin(axis=1)
        at = rows * self.tick.shape[1] + job
        now = self.tick.ravel()[at]
        live: Flags = now <= self.horizon
        group = self.group.ravel()[at]
        is_end = group >= 0
        ended, arrived = np.flatnonzero(is_end), np.flatnonzero(~is_end)
        served = [self._arrive(arrived, job[arrived], at[arrived], now[arrived])]
        if len(ended):
            served.append(self._end(ended, job[ended], at[ended], now[ended], live[ended]))
        row, by, where = (np.concatenate(parts) for parts in zip(*served, strict=True))
        self._serve(row, by, where, now[row])
        return live

    def _arrive(self, row: Ints, job: Ints, at: Ints, now: Ints) -> tuple[Ints, Ints, Ints]:
        """Jobs ask for groups: cells, jobs and groups where one is free, rather the last one's."""
        self.ready.ravel()[at] = now
        is_open = self.is_free[row] & self.here.reshape(-1, self.num_groups)[at]
        liking = is_open * (1 + (self.resident[row] == job[:, None]))
        group = liking.argmax(axis=1)
        is_served = liking[np.arange(len(row)), group] > 0
        waits = at[~is_served]
        self.tick.ravel()[waits] = NEVER
        self.is_waiting.ravel()[waits] = True
        return row[is_served], job[is_served], group[is_served]

    def _end(
        self, row: Ints, job: Ints, at: Ints, now: Ints, live: Flags
    ) -> tuple[Ints, Ints, Ints]:
        """Jobs give groups back: cells, jobs and groups where somebody is served next."""
        group = self.group.ravel()[at]
        self._leave(at, group, now)
        tick, is_last = self._go_on(at, now)
        # A job whose tape is at its end is seen no more.
        is_done = is_last & (self.at_pass.ravel()[at] > self.last_pass.ravel()[at])
        self.tick.ravel()[at[is_done]] = NEVER
        counted = is_last & live
        cells = self.cell[row[counted]]
        self.counts[cells, job[counted]] += 1
        self.lasts[cells, job[counted]] = tick[counted]
        self.is_free[row, group] = True
        claim = self._claims(row, group, now)
        by = claim.argmax(axis=1)
        rows = np.arange(len(row))
        is_served = claim[rows, by] > -math.inf
        if self._is_kept:
            may_stay = self.here.reshape(-1, self.num_groups)[at, group]
            keeps = ~is_last & (tick == now) & may_stay
            self.ready.ravel()[at[keeps]] = now[keeps]
            by, is_served = np.where(keeps, job, by), is_served | keeps
        return row[is_served], by[is_served], group[is_served]

    def _leave(self, at: Ints, group: Ints, now: Ints) -> None:
        """States that have changed begin to follow to other groups."""
        copy = self.copy.ravel()[at * self.rank.shape[2] + self.op.ravel()[at]]
        copied = copy > 0
        self.left.ravel()[at[copied]] = group[copied]
        self.left_tick.ravel()[at[copied]] = (now + copy)[copied]

    def _go_on(self, at: Ints, now: Ints) -> tuple[Ints, Flags]:
        """Jobs turn to their next ops: at which tick, and whether a pass has ended."""
        op, at_pass, size = self.op.ravel()[at], self.at_pass.ravel()[at], self.size.ravel()[at]
        tick: Ints = now + self.waits[self._tape_place(at, at_pass, size) + op]
        is_last: Flags = op + 1 == size
        op = np.where(is_last, 0, op + 1)
        place = at * self.rank.shape[2] + op
        self.at_pass.ravel()[at] = at_pass + is_last
        self.op.ravel()[at] = op
        self.tick.ravel()[at] = tick
        self.group.ravel()[at] = -1
        flat = self.place.reshape(-1, self.num_groups)
        self.here.reshape(-1, self.num_groups)[at] = flat[place]
        self.weight.ravel()[at] = self.rank.ravel()[place]
        return tick, is_last

    def _claims(self, row: Ints, group: Ints, now: Ints) -> Floats:
        """How much each job has a claim on a group; none: minus infinity."""
        can = self.is_waiting[row] & self.here[row, :, group]
        ready = self.ready[row]
        if self._is_first_ready:
            return np.where(can, -ready.astype(np.float64), -math.inf)
        tolerance = self.tolerance[row]
        lag = (self.waited[row] + now[:, None] - ready) / self.alone[row]
        calm = -self.weight[row] * fade(np.minimum(lag, tolerance), tolerance)
        claim = np.where(lag > tolerance, IN_DANGER + lag / tolerance, calm)
        return np.where(can, claim, -math.inf)

    def _tape_place(self, at: Ints, at_pass: Ints, size: Ints) -> Ints:
        """Where the ops of a pass stand in the tapes; those past the last are not asked for."""
        places: Ints = self.start.ravel()[at]
        places += np.minimum(at_pass, self.last_pass.ravel()[at]) * size
        return places

    def _serve(self, row: Ints, job: Ints, group: Ints, now: Ints) -> None:
        """Groups begin to serve jobs."""
        at = row * self.tick.shape[1] + job
        op = self.op.ravel()[at]
        place = at * self.rank.shape[2] + op
        tape = self._tape_place(at, self.at_pass.ravel()[at], self.size.ravel()[at]) + op
        lease = self.leases[tape]
        self.waited.ravel()[at] += now - self.ready.ravel()[at]
        self.alone.ravel()[at] += lease + self.waits[tape]
        before = self.resident[row, group]
        extra = np.where((before != job) & (before >= 0), self.swap.ravel()[place], 0)
        left = self.left.ravel()[at]
        is_elsewhere = (self.copy.ravel()[place] > 0) & (left >= 0) & (left != group)
        rest = np.maximum(self.left_tick.ravel()[at] - now, 0)
        extra += np.where(is_elsewhere, rest, 0)
        self.tick.ravel()[at] = now + extra + np.maximum(lease, 1)
        self.group.ravel()[at] = group
        self.is_waiting.ravel()[at] = False
        self.is_free[row, group] = False
        self.resident[row, group] = job
