"""The stages of a packing, in the order in which they share the time."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from solver.bounds import BoundClass
from solver.certificate import Certificate, certified_value
from solver.cpsat.choice_messages import ChoiceRequest, Chosen
from solver.cpsat.cyclic import Effort, Ending
from solver.cpsat.diving import dive
from solver.cpsat.master import IntegerAnswer, choose
from solver.cpsat.pack_messages import PackRequest, Searched
from solver.cpsat.packing import Generation, Packing, Tell
from solver.objective import MILLION, Objective
from solver.plan import Plan

MAX_ENUMERATED = 20_000
"""Where there are no more sets than this all are columns, and the best choice is the optimum."""
MAX_ENUMERATED_JOBS = 24
"""With more jobs the sets are not counted out."""
MAX_PRICES = 8
"""Prices per rate tried for `GPU_HOURS`; Dinkelbach's method rarely needs five."""
COMMON_SHARE = 0.4
"""Share of the time for common cycles, where there are few jobs that may pass several times."""
COLUMN_SHARE = 0.5
"""Share of the time that generating columns may take; what is left belongs to plans."""
DIVE_SHARE = 0.8
"""Share of what is left after that for dives; CP-SAT has the rest."""
FIRST_DIVE_SHARE = 0.9
"""Share of what is left after the columns that the first dive may take: it must not be in vain."""
UNIVERSAL_SHARE = 0.3
"""Share of what is left after the first dive that the universal bound may take."""
REPEATING_UNIVERSAL_SHARE = 0.6
"""The same where jobs may pass several times: no other bound admits such plans."""


def pack(request: PackRequest, deadline: float, tell: Tell) -> None:
    """Tell better and better plans and bounds until there are none or the deadline has come.

    Parameters
    ----------
    request
        What to pack.
    deadline
        When to have ended, on the monotonic clock.
    tell
        Told each better plan and bound.
    """
    start = request.start
    if request.most_passes > 1:
        if len(request.problem.jobs) <= MAX_ENUMERATED_JOBS:
            until = time.monotonic() + COMMON_SHARE * (deadline - time.monotonic())
            start = _pack_common(_packing(request, start, until, tell, 1)).best
        _pack_repeating(_packing(request, start, deadline, tell, request.most_passes))
    else:
        _pack_common(_packing(request, start, deadline, tell, 1))


def choose_columns(request: ChoiceRequest, budget_s: float, tell: Callable[[Chosen], None]) -> None:
    """Tell better and better choices among the columns of a request."""
    choose(
        request.num_jobs,
        request.counts,
        request.columns,
        request.start,
        Effort(budget_s, request.seed, deterministic_s=request.deterministic_s),
        lambda columns: tell(Chosen(columns)),
    )


def _packing(
    request: PackRequest, start: Plan | None, deadline: float, tell: Tell, most_passes: int
) -> Packing:
    packing = Packing(request.problem, request.objective, deadline, request.seed, tell, most_passes)
    if start is not None:
        packing.take(start)
    return packing


def _pack_common(packing: Packing) -> Packing:
    """Every job once in the cycle of its group."""
    is_complete = len(packing.problem.jobs) <= MAX_ENUMERATED_JOBS and _enumerate(packing)
    if packing.objective is Objective.GPU_HOURS:
        _lower_price(packing, is_complete=is_complete)
        return packing
    packing.columns.run(_after(packing, COLUMN_SHARE), packing.is_proven)
    is_proven = packing.is_proven() or is_complete
    if not is_proven:
        dive(packing, _after(packing, FIRST_DIVE_SHARE))
    if packing.objective in {Objective.GROUPS, Objective.COST}:
        _bound_any_schedule(packing, UNIVERSAL_SHARE)
    if not is_proven:
        _dive_again(packing, _after(packing, DIVE_SHARE))
    if not packing.is_proven():
        _settle(packing, is_complete=is_complete)
    return packing


def _pack_repeating(packing: Packing) -> None:
    """Some jobs more than once in a cycle; their own duals bound nothing, universal ones do."""
    packing.columns.run(_after(packing, COLUMN_SHARE), packing.is_proven)
    if not packing.is_proven():
        dive(packing, _after(packing, FIRST_DIVE_SHARE))
    _bound_any_schedule(packing, REPEATING_UNIVERSAL_SHARE)
    if not packing.is_proven():
        _dive_again(packing, _after(packing, DIVE_SHARE))
        _settle(packing, is_complete=False)


def _after(packing: Packing, share: float) -> float:
    """When this share of the time left will be over."""
    return time.monotonic() + share * packing.left_s


def _enumerate(packing: Packing) -> bool:
    generation = packing.columns
    known = len(generation.pool.columns)
    is_complete = generation.pool.add_all(MAX_ENUMERATED)
    for column in generation.pool.columns[known:]:
        generation.master.add(column)
    return is_complete


def _lower_price(packing: Packing, *, is_complete: bool) -> None:
    """Dinkelbach: price work as the best plan does, and look for a plan that beats this price."""
    generation = packing.columns
    for _ in range(MAX_PRICES):
        before = packing.best_value
        if before is None:
            packing.columns.run(_after(packing, COLUMN_SHARE))
        else:
            generation.pool.value_with(before)
            generation.master.set_costs(generation.pool.columns)
            generation.best = generation.center = None
            generation.run(_after(packing, COLUMN_SHARE / 2))
        if packing.left_s <= 0:
            return
        if not is_complete:
            dive(packing, _after(packing, DIVE_SHARE))
        _settle(packing, is_complete=is_complete)
        if packing.best_value == before:
            return


def _dive_again(packing: Packing, deadline: float) -> None:
    """Dive as long as that helps: what one dive learns of sets without a timeline, the next has."""
    while time.monotonic() < deadline and not packing.is_proven():
        before = packing.best_value, len(packing.barren)
        dive(packing, deadline)
        if before == (packing.best_value, len(packing.barren)):
            return
        packing.columns.run(deadline, packing.is_proven)


def _bound_any_schedule(packing: Packing, share: float) -> None:
    """Look for the universal bound, with the columns at hand as a start."""
    generation = Generation.of(
        packing.problem, packing.objective, BoundClass.UNIVERSAL, packing.tell
    )
    for column in packing.columns.pool.columns:
        generation.add(column.kind, column.jobs)
    generation.start_from(generation.pricer.fluid_duals())
    if (known := packing.columns.best) is not None:
        duals = np.array([known.duals[job.id] for job in packing.problem.jobs], np.int64)
        generation.start_from(duals)
    generation.run(_after(packing, share))


def _settle(packing: Packing, *, is_complete: bool) -> None:
    """CP-SAT chooses among the columns that could be part of something better.

    Where all sets are columns, that is the optimum, once no chosen column turns out to need a
    longer cycle than it was costed with.
    """
    pool = packing.columns.pool
    banned: set[int] = set()
    while packing.left_s > 0:
        candidates = [index for index in _promising(packing) if index not in banned]
        if not candidates:
            return
        answer = choose(
            len(packing.problem.jobs),
            [kind.count for kind in pool.kinds],
            [pool.columns[index] for index in candidates],
            [at for at, index in enumerate(candidates) if index in packing.taken],
            Effort(packing.left_s, packing.seed),
        )
        if answer.columns is None:
            _tell_nothing_is_better(packing, answer, is_complete=is_complete)
            return
        chosen = [candidates[at] for at in answer.columns]
        missing = {index for index in chosen if packing.realised(index).timeline is None}
        banned |= missing
        longer = [pool.lengthen(at, packing.realised(at).least_ticks) for at in chosen]
        if not missing:
            packing.offer(chosen)
        if missing or any(longer):
            continue
        if is_complete and answer.ending is Ending.OPTIMAL:
            packing.tell(Searched(_searched_value(packing, answer.bound)))
        return


def _searched_value(packing: Packing, bound: int) -> int:
    """What a bound on the sum of column costs says about the objective, in its unit."""
    if packing.objective is Objective.THROUGHPUT:
        return bound
    if packing.objective is not Objective.GPU_HOURS:
        # Without moves every plan costs a whole number; what moves add is rounded down.
        return bound // MILLION if packing.problem.has_moves else -(-bound // MILLION)
    nothing = Certificate(Objective.GPU_HOURS, {}, {"": -bound}, packing.columns.pool.theta)
    return certified_value(packing.problem, nothing)


def _tell_nothing_is_better(packing: Packing, answer: IntegerAnswer, *, is_complete: bool) -> None:
    """No choice of promising columns exists: the best plan is the optimum if none were missing."""
    if is_complete and answer.ending is Ending.INFEASIBLE and packing.best_value is not None:
        packing.tell(Searched(packing.best_value))


def _promising(packing: Packing) -> list[int]:
    """Columns whose reduced cost leaves room for a plan better than the best."""
    columns = packing.columns.pool.columns
    bound = packing.columns.best
    if bound is None or packing.best_value is None or packing.objective is Objective.GPU_HOURS:
        return list(range(len(columns)))
    best = packing.best_value
    room = (best if packing.objective is Objective.THROUGHPUT else best * MILLION) - bound.total
    duals = np.array([bound.duals[job.id] for job in packing.problem.jobs], np.int64)
    return [
        index
        for index, column in enumerate(columns)
        if column.cost - int(duals[list(column.jobs)].sum()) <= room
    ]
