"""Cuts all sets of jobs that may share a group into cells within which pricing is a knapsack.

What makes a set feasible under a common cycle is a window: no job longer alone than the cycle, no
limit shorter, the load within it. Where the cost does not depend on the cycle, the cycle may be
taken as long as the strictest job allows, so each job that could be the strictest gives one exact
cell. Where it does, each job that could be the longest gives one exact cell for sets whose load
fits into its iteration, and more for longer cycles, each valued at its lower end, or at its load
where cost is linear in it. A universal bound knows no common cycle: each job takes the share of
its group that its limit makes it take, and each that could take most gives one cell.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from solver.bounds import BoundClass, least_switch_ticks, may_use
from solver.objective import MILLION, Objective
from solver.placement.kinds import GroupKind
from solver.placement.knapsack import Ints, MemoryStates, memory_states
from solver.problem import Problem

LOAD_STEPS = 128
"""Steps of the load grid in a cell."""
WHOLE_SHARE = 10**9
"""The share of a group that is the whole of it."""
GRID_PERMILLE = 50
"""Width of a cell of the grid of cycle lengths."""


Flags = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class JobTable:
    """The numbers of all jobs, as columns."""

    alone: Ints
    limit: Ints
    load: Ints
    """Busy ticks and the least switch."""
    busy: Ints
    memory: Ints
    weight: Ints


@dataclass(frozen=True, slots=True)
class Cell:
    """Sets of jobs on one kind of group that differ from each other in load and memory only."""

    forced: int
    """Job that each set of the cell has."""
    jobs: Ints
    """Jobs that may be in a set besides it."""
    loads: Ints
    """Their loads in grid steps, rounded down; `LOAD_STEPS` of them are free."""
    exact_loads: Ints
    """Their loads before rounding."""
    memory: Ints
    kinds: Ints
    """Index of their memory in `states.sizes`."""
    states: MemoryStates
    cost: int
    """Cost of a set, in millionths, without what depends on its jobs."""
    cycle_ticks: int
    """Shortest cycle of the cell: jobs are valued with it."""
    is_by_load: bool
    """Whether a set costs its load instead (rounds of load-bound groups)."""


def job_table(problem: Problem) -> JobTable:
    """The columns of a problem's jobs, in their order."""
    jobs = problem.jobs

    def column(values: Iterator[int]) -> Ints:
        return np.fromiter(values, np.int64, len(jobs))

    return JobTable(
        alone=column(job.alone_ticks for job in jobs),
        limit=column(job.limit_ticks for job in jobs),
        load=column(job.busy_ticks + least_switch_ticks(job) for job in jobs),
        busy=column(job.busy_ticks for job in jobs),
        memory=column(job.memory_bytes for job in jobs),
        weight=column(job.weight for job in jobs),
    )


def cells_of(
    problem: Problem,
    kind: GroupKind,
    objective: Objective,
    bound_class: BoundClass,
    impossible: Flags,
) -> tuple[Cell, ...]:
    """All cells of a kind of group; together they hold every set of two and more jobs on it.

    A set of one job is in the cell that forces it, with nothing else chosen. Sets in which the
    forced job is one of an `impossible` pair are left out.
    """
    usable = np.array([may_use(job, kind.example) for job in problem.jobs], np.bool_)
    builder = _Builder(problem, kind, objective, job_table(problem), usable, impossible)
    if bound_class is BoundClass.UNIVERSAL:
        return tuple(builder.largest_share())
    if objective in {Objective.GROUPS, Objective.COST}:
        return tuple(builder.strictest())
    return (*builder.longest(), *builder.beyond())


@dataclass(frozen=True, slots=True)
class _Builder:
    problem: Problem
    kind: GroupKind
    objective: Objective
    table: JobTable
    usable: Flags
    impossible: Flags

    def cost(self, cycle_ticks: int) -> int:
        price = self.kind.example.price
        match self.objective:
            case Objective.ROUND:
                return MILLION * price * cycle_ticks
            case Objective.GROUPS:
                return MILLION
            case Objective.COST | Objective.GPU_HOURS:
                return MILLION * price
            case Objective.THROUGHPUT:
                return 0

    def largest_share(self) -> Iterator[Cell]:
        """One cell for each job as the one that takes the largest share of the group."""
        table = self.table
        shares = table.busy * WHOLE_SHARE // table.limit
        rank = _rank(-shares)
        for first in np.flatnonzero(self.usable).tolist():
            others = self.usable & (rank > rank[first])
            yield self._forced(first, others, WHOLE_SHARE, 1, shares)

    def strictest(self) -> Iterator[Cell]:
        """One cell for each job as the one with the least limit (ties: the first of them)."""
        table, usable = self.table, self.usable
        rank = _rank(table.limit)
        for first in np.flatnonzero(usable).tolist():
            limit = int(table.limit[first])
            others = usable & (rank > rank[first]) & (table.alone <= limit)
            yield self._forced(first, others, limit, limit, table.load)

    def longest(self) -> Iterator[Cell]:
        """One cell for each job as the longest one, with all loads within its iteration."""
        table, usable = self.table, self.usable
        rank = _rank(-table.alone)
        for first in np.flatnonzero(usable).tolist():
            cycle = int(table.alone[first])
            others = usable & (rank > rank[first]) & (table.limit >= cycle)
            yield self._forced(first, others, cycle, cycle, table.load)

    def beyond(self) -> Iterator[Cell]:
        """Cells for each job as the longest one, with a load longer than its iteration."""
        table, usable = self.table, self.usable
        rank = _rank(-table.alone)
        for first in np.flatnonzero(usable).tolist():
            others = usable & (rank > rank[first])
            for low, high in self._ranges(int(table.alone[first]), int(table.limit[first])):
                some = others & (table.limit >= low)
                yield self._forced(first, some, high, low, table.load, is_by_load=self._is_linear)

    @property
    def _is_linear(self) -> bool:
        return self.objective is Objective.ROUND

    def _ranges(self, low: int, last: int) -> Iterator[tuple[int, int]]:
        """Ranges of the cycle; one is enough where cost is linear in it."""
        if self._is_linear:
            yield low, last
            return
        while low <= last:
            high = min(max(low, low + low * GRID_PERMILLE // 1000 - 1), last)
            yield low, high
            low = high + 1

    def _forced(
        self,
        first: int,
        others: Flags,
        whole: int,
        cycle: int,
        loads: Ints,
        *,
        is_by_load: bool = False,
    ) -> Cell:
        left = whole - int(loads[first])
        room = self.kind.example.memory_bytes - int(self.table.memory[first])
        fits = (loads <= left) & (self.table.memory <= room) & ~self.impossible[first]
        jobs = np.flatnonzero(others & fits)
        memory = self.table.memory[jobs]
        most = (self.kind.example.max_jobs or len(self.problem.jobs)) - 1
        states = memory_states(memory, room, most)
        return Cell(
            forced=first,
            jobs=jobs,
            loads=loads[jobs] * LOAD_STEPS // max(left, 1),
            exact_loads=loads[jobs],
            memory=memory,
            kinds=np.searchsorted(states.sizes, memory),
            states=states,
            cost=0 if is_by_load else self.cost(cycle),
            cycle_ticks=cycle,
            is_by_load=is_by_load,
        )


def _rank(values: Ints) -> Ints:
    """Place of each in ascending order, the earlier first among equals."""
    rank = np.empty_like(values)
    rank[np.argsort(values, kind="stable")] = np.arange(values.size)
    return rank
