"""From fractions to whole sets: take the surest columns, price again for what is left, repeat."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np

from solver.cpsat.packing import Packing
from solver.objective import MILLION
from solver.placement.knapsack import NEVER

SURE_SHARE = 0.9
"""A column taken by at least this much in the linear master is taken whole."""
NUM_STEPS = 25
"""Steps a dive should need: so many of the largest shares are taken at once."""
SERVED_DUAL = NEVER // 2**20
"""Dual of a job that is served: no set with it pays."""


def dive(packing: Packing, deadline: float) -> None:
    """Offer a plan made of columns that the linear master likes best.

    Sets whose jobs are partly served are trimmed. Sets without a timeline stay forbidden in the
    master, which is otherwise left as it was.
    """
    generation = packing.columns
    fixed: dict[int, int] = {}
    served: set[int] = set()
    num_jobs = len(packing.problem.jobs)
    while len(served) < num_jobs and time.monotonic() < deadline:
        answer = generation.master.solve()
        if answer is None:
            break
        before = len(fixed)
        for index in _surest(answer.shares, fixed, (num_jobs - len(served)) // NUM_STEPS + 1):
            _take(packing, index, fixed, served)
        if len(fixed) == before:
            break
        duals = answer.duals.copy()
        duals[list(served)] = SERVED_DUAL
        _price(packing, duals)
    for index in fixed:
        generation.master.fix(index, 0 if index in packing.barren else None)
    if len(served) == num_jobs:
        packing.offer([index for index, share in fixed.items() if share])


def _surest(shares: Sequence[float], fixed: dict[int, int], at_least: int) -> list[int]:
    """Free columns with sure shares, or else the largest, by share."""
    open_shares = [
        (-share, index) for index, share in enumerate(shares) if share > 0 and index not in fixed
    ]
    ordered = [index for _, index in sorted(open_shares)]
    num_sure = sum(-share >= SURE_SHARE for share, _ in open_shares)
    return ordered[: max(num_sure, at_least)]


def _take(packing: Packing, index: int, fixed: dict[int, int], served: set[int]) -> None:
    generation = packing.columns
    column = generation.pool.columns[index]
    rest = [job for job in column.jobs if job not in served]
    if len(rest) < len(column.jobs):
        generation.master.fix(index, 0)
        fixed[index] = 0
        if not rest:
            return
        generation.add(column.kind, rest)
        trimmed = generation.pool.find(column.kind, rest)
        if trimmed is None or trimmed in fixed:
            return
        index = trimmed
    is_real = packing.realised(index).timeline is not None
    if not is_real:
        packing.barren.add(index)
    generation.master.fix(index, int(is_real))
    fixed[index] = int(is_real)
    if is_real:
        served.update(rest)


def _price(packing: Packing, duals: np.ndarray[tuple[int], np.dtype[np.int64]]) -> None:
    generation = packing.columns
    charges = np.zeros(len(generation.pricer.kinds), np.int64)
    priced = generation.pricer.price(duals, charges, generation.pool.theta)
    for (kind, _), entry in zip(generation.pricer.cells, priced, strict=True):
        if entry.value > MILLION // 1000 and entry.jobs:
            generation.add(kind, entry.jobs)
