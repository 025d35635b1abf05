"""Whether two jobs have a common cycle at all, found out without the code that claims they do not.

Every cyclic order of their ops on the group is a graph whose edges say how long after one op
another may start; an order works unless going round some cycle of edges takes longer than nothing,
which the longest paths between all ops tell (Floyd 1962).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from solver.problem import Job

MAX_OPS = 8
"""Pairs with more ops together are taken to be possible."""
NO_EDGE = -(2**60)


@dataclass(slots=True, eq=False)
class Pairs:
    """Pairs looked at so far."""

    known: dict[tuple[str, str], bool] = field(default_factory=dict)
    orders: dict[tuple[int, int], tuple[tuple[int, ...], ...]] = field(default_factory=dict)

    def is_possible(self, one: Job, other: Job) -> bool:
        """Whether two jobs may share a group within their limits; true where that is not known."""
        key = (one.id, other.id)
        if key not in self.known:
            self.known[key] = self._look(one, other)
        return self.known[key]

    def _look(self, one: Job, other: Job) -> bool:
        shape = (len(one.ops), len(other.ops))
        if sum(shape) > MAX_OPS:
            return True
        if shape not in self.orders:
            self.orders[shape] = tuple(_orders(*shape))
        cycle = min(
            job.slowdown_limit_permille
            * sum(op.duration_ticks + op.wait_ticks for op in job.ops)
            // 1000
            for job in (one, other)
        )
        paths = np.stack([_edges(one, other, order, cycle) for order in self.orders[shape]])
        for middle in range(paths.shape[1]):
            through = paths[:, :, middle, None] + paths[:, middle, None, :]
            paths = np.maximum(paths, np.maximum(through, NO_EDGE))
        around = np.diagonal(paths, axis1=1, axis2=2)
        return bool((around <= 0).all(axis=1).any())


def _orders(count: int, others: int, placed: tuple[int, ...] = ()) -> Iterator[tuple[int, ...]]:
    """Sequences that begin with op 0 and keep both loops; ops of the second job follow the first's.

    The second job's loop may begin anywhere.
    """
    if not placed:
        yield from _orders(count, others, (0,))
        return
    ours = [op for op in placed if op < count]
    theirs = [op for op in placed if op >= count]
    if len(placed) == count + others:
        yield placed
        return
    if len(ours) < count:
        yield from _orders(count, others, (*placed, len(ours)))
    if len(theirs) == others:
        return
    follow = [count + (theirs[-1] + 1 - count) % others] if theirs else range(count, count + others)
    for op in follow:
        yield from _orders(count, others, (*placed, op))


def _edges(one: Job, other: Job, order: tuple[int, ...], cycle: int) -> NDArray[np.int64]:
    ops = (*one.ops, *other.ops)
    count = len(one.ops)
    place = {op: at for at, op in enumerate(order)}
    edges = np.full((len(ops), len(ops)), NO_EDGE, np.int64)
    for before, after in pairwise((*order, order[0])):
        switch = ops[after].switch_ticks if (before < count) != (after < count) else 0
        back = cycle if place[after] <= place[before] else 0
        edges[before, after] = ops[before].duration_ticks + switch - back
    for first, size in ((0, count), (count, len(other.ops))):
        for step in range(size):
            before, after = first + step, first + (step + 1) % size
            back = cycle if place[after] <= place[before] else 0
            length = ops[before].duration_ticks + ops[before].wait_ticks - back
            edges[before, after] = max(edges[before, after], length)
    return edges
