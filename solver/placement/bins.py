"""Groups while jobs are placed one by one, as columns: a job is tried on thousands at once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from solver.bounds import least_switch_ticks
from solver.placement.kinds import group_kinds
from solver.problem import MAX_BYTES, Group, Job, Problem

_ENDLESS = 2**62
"""Longer than any limit."""


class Bins:
    """Groups and the jobs on them so far."""

    def __init__(self, problem: Problem) -> None:
        groups = problem.groups
        count = len(groups)
        self._current: Mapping[str, str] = problem.current or {}
        self._horizon = problem.horizon_ticks
        self._index = {group.id: at for at, group in enumerate(groups)}
        self._groups: Sequence[Group] = groups
        self.jobs: list[list[Job]] = [[] for _ in groups]
        """Per group its jobs, in the order of their arrival."""
        self._price = np.array([group.price for group in groups], np.int64)
        self._pool = np.array([group.pool for group in groups])
        self._free = np.array([group.memory_bytes for group in groups], np.int64)
        self._slots = np.array([group.max_jobs or MAX_BYTES for group in groups], np.int64)
        self._busy = np.zeros(count, np.int64)
        self._switch = np.zeros(count, np.int64)
        self._chain = np.zeros(count, np.int64)
        self._limit = np.full(count, _ENDLESS, np.int64)
        self._floor = np.zeros(count, np.int64)
        # Of idle groups that are alike only the first is a candidate.
        self._idle = [[self._index[g.id] for g in kind.groups] for kind in group_kinds(problem)]
        for order in self._idle:
            order.reverse()
        self._open: list[int] = []

    def candidates(self, job: Job) -> Iterator[int]:
        """Groups that may take a job, least added price × cycle floor and move first.

        Among equals the group the job is on now comes first, then the one with least memory left.
        """
        at = self._tried(job)
        switch = np.where(self._busy[at] > 0, self._switch[at] + least_switch_ticks(job), 0)
        load = self._busy[at] + job.busy_ticks + switch
        floor = np.maximum(load, np.maximum(self._chain[at], job.alone_ticks))
        fits = (
            (floor <= np.minimum(self._limit[at], job.limit_ticks))
            & (self._free[at] >= job.memory_bytes)
            & (self._slots[at] > 0)
        )
        if job.pool is not None:
            fits &= self._pool[at] == job.pool
        at, floor = at[fits], floor[fits]
        added = self._price[at] * (floor - self._floor[at])
        stays = self._current.get(job.id)
        moves = at != (-1 if stays is None else self._index[stays])
        if stays is not None and job.move_ticks:
            share = job.move_ticks / self._horizon
            lost = np.minimum(self._price[at] * floor * share, _ENDLESS // 2)
            added = added + moves * lost.astype(np.int64)
        for position in np.lexsort((self._free[at], moves, added)):
            index = int(at[position])
            if not self._is_forbidden(job, index):
                yield index

    def _tried(self, job: Job) -> NDArray[np.int64]:
        if job.pinned_group is not None:
            return np.array([self._index[job.pinned_group]], np.int64)
        stays = self._current.get(job.id)
        idle = [order[-1] for order in self._idle if order]
        if stays is not None and not self.jobs[self._index[stays]]:
            idle.append(self._index[stays])
        return np.array(sorted({*self._open, *idle}), np.int64)

    def _is_forbidden(self, job: Job, index: int) -> bool:
        return any(other.id in job.forbids or job.id in other.forbids for other in self.jobs[index])

    def put(self, job: Job, index: int) -> None:
        """Place a job on a group."""
        if not self.jobs[index]:
            self._open.append(index)
            for order in self._idle:
                if order and index in order[-1:]:
                    order.pop()
                    break
            else:
                self._idle = [[at for at in order if at != index] for order in self._idle]
        self.jobs[index].append(job)
        self._sum(index)

    def drop_last(self, index: int) -> Job:
        """Take back the job that a group got last."""
        job = self.jobs[index].pop()
        self._sum(index)
        return job

    def _sum(self, index: int) -> None:
        group, jobs = self._groups[index], self.jobs[index]
        self._free[index] = group.memory_bytes - sum(job.memory_bytes for job in jobs)
        self._slots[index] = (group.max_jobs or MAX_BYTES) - len(jobs)
        self._busy[index] = sum(job.busy_ticks for job in jobs)
        self._switch[index] = sum(least_switch_ticks(job) for job in jobs)
        self._chain[index] = max((job.alone_ticks for job in jobs), default=0)
        self._limit[index] = min((job.limit_ticks for job in jobs), default=_ENDLESS)
        load = self._busy[index] + (self._switch[index] if len(jobs) > 1 else 0)
        self._floor[index] = max(load, self._chain[index])
