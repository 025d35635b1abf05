"""Sets of jobs that may share a group, each with what it costs: the columns of the master."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from solver.bounds import BoundClass, cycle_floor_ticks, cycle_limit_ticks, may_use
from solver.objective import Objective, column_cost, least_lost_millionths
from solver.placement.kinds import GroupKind
from solver.placement.pairs import Flags
from solver.placement.passes import pass_counts
from solver.problem import Group, Job, Problem


@dataclass(frozen=True, slots=True)
class Column:
    """A set of jobs on a group of a kind."""

    kind: int
    """Index of the kind of group."""
    jobs: tuple[int, ...]
    """Indices of the jobs, ascending."""
    cost: int
    """What it adds to the objective, in millionths."""


@dataclass(slots=True, eq=False)
class ColumnPool:
    """The columns met so far, without repetition."""

    problem: Problem
    kinds: Sequence[GroupKind]
    objective: Objective
    bound_class: BoundClass
    impossible: Flags
    """Pairs of jobs that may share no group."""
    most_passes: int = 1
    """Most passes of a job in a cycle; above 1 sets need load and chain for some numbers of
    passes, whatever the class."""
    theta: int = 0
    columns: list[Column] = field(default_factory=list)
    known: dict[tuple[int, tuple[int, ...]], int | None] = field(default_factory=dict)
    """Kind and jobs → index of the column; None: the set breaks a requirement."""

    def jobs_of(self, column: Column) -> tuple[Job, ...]:
        """The jobs of a column."""
        return tuple(self.problem.jobs[index] for index in column.jobs)

    def add(self, kind: int, jobs: Iterable[int]) -> Column | None:
        """The new column of a set of jobs; None if it is known already or breaks a requirement."""
        indices = tuple(sorted(jobs))
        if (kind, indices) in self.known:
            return None
        members = tuple(self.problem.jobs[index] for index in indices)
        if self._has_impossible_pair(indices) or not self._fits(kind, members):
            self.known[kind, indices] = None
            return None
        self.known[kind, indices] = len(self.columns)
        column = Column(kind, indices, self._cost(kind, members))
        self.columns.append(column)
        return column

    def find(self, kind: int, jobs: Iterable[int]) -> int | None:
        """Index of the column of a set of jobs; None if there is none."""
        return self.known.get((kind, tuple(sorted(jobs))))

    def lengthen(self, index: int, cycle_ticks: int) -> bool:
        """Cost a column for a cycle no shorter than this; whether that makes it dearer."""
        column = self.columns[index]
        price = self.kinds[column.kind].example.price
        members = self.jobs_of(column)
        lost = self._lost(column.kind, members)
        cost = column_cost(self.objective, price, cycle_ticks, members, self.theta, lost)
        if cost > column.cost:
            self.columns[index] = Column(column.kind, column.jobs, cost)
        return cost > column.cost

    def value_with(self, theta: int) -> None:
        """Cost all columns anew with another price per rate."""
        self.theta = theta
        self.columns = [
            Column(column.kind, column.jobs, self._cost(column.kind, self.jobs_of(column)))
            for column in self.columns
        ]

    def add_all(self, most: int) -> bool:
        """Add every set there is; whether there are no more than `most`, else some are missing."""
        for kind in range(len(self.kinds)):
            stack: list[tuple[int, tuple[int, ...]]] = [(0, ())]
            while stack:
                first, chosen = stack.pop()
                for index in range(first, len(self.problem.jobs)):
                    wider = (*chosen, index)
                    members = tuple(self.problem.jobs[at] for at in wider)
                    if self._has_impossible_pair(wider) or not self._fits(kind, members):
                        continue
                    self.add(kind, wider)
                    if len(self.columns) > most:
                        return False
                    stack.append((index + 1, wider))
        return True

    def _has_impossible_pair(self, indices: tuple[int, ...]) -> bool:
        return bool(self.impossible[np.ix_(indices, indices)].any())

    def _fits(self, kind: int, members: tuple[Job, ...]) -> bool:
        if not fits(self.kinds[kind].example, members, self.bound_class):
            return False
        return self.most_passes == 1 or any(pass_counts(members, self.most_passes))

    def _cost(self, kind: int, members: tuple[Job, ...]) -> int:
        price = self.kinds[kind].example.price
        cycle = cycle_floor_ticks(members)
        lost = self._lost(kind, members)
        return column_cost(self.objective, price, cycle, members, self.theta, lost)

    def _lost(self, kind: int, members: tuple[Job, ...]) -> int:
        """Least share of the horizon that a group of the kind loses to moves, in millionths."""
        return least_lost_millionths(self.problem, self.kinds[kind].groups, members)


def fits(group: Group, jobs: tuple[Job, ...], bound_class: BoundClass) -> bool:
    """Whether a set of jobs keeps what is necessary on a group, in the schedules of a class.

    Common cycles: the floor of the cycle within all limits. Any schedule: the shares of the group
    that the limits ask for are no more than all of it. Every part of a set that fits, fits.
    """
    if group.max_jobs is not None and len(jobs) > group.max_jobs:
        return False
    if sum(job.memory_bytes for job in jobs) > group.memory_bytes:
        return False
    ids = {job.id for job in jobs}
    if any(not may_use(job, group) or ids.intersection(job.forbids) for job in jobs):
        return False
    if bound_class is BoundClass.UNIVERSAL:
        whole = 10**12
        return sum(whole * job.busy_ticks // job.limit_ticks for job in jobs) <= whole
    return cycle_floor_ticks(jobs) <= cycle_limit_ticks(jobs)
