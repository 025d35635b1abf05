"""Hands a whole problem to column generation and takes back what passes the check."""

from __future__ import annotations

import time
from collections.abc import Sequence

from solver.attempt import Attempt
from solver.bounds import Bound, BoundClass, Proof
from solver.certificate import certified_value
from solver.cpsat import guard
from solver.cpsat.leash import ChildEnd
from solver.cpsat.pack_messages import Certified, PackAnswer, Packed, Searched
from solver.errors import PlanError
from solver.result import Result, Source, Status

LEAST_PACK_S = 1.5
"""With less of the budget left the solver is not started: loading it takes half of this."""
MAX_PACKED_JOBS = 4_000
"""With more jobs the cells of pricing outgrow the memory of the solver's process."""
NOTHING_FOUND = (
    "no placement was found that keeps every requirement, and none was excluded; "
    "add groups or relax slowdown limits"
)


def place(attempt: Attempt, seed: int, memory_bytes: int, command: Sequence[str]) -> Result:
    """Place the jobs anew in the time that is left, and end the attempt."""
    budget_s = attempt.deadline - time.monotonic()
    if budget_s < LEAST_PACK_S:
        return _ended(attempt, Status.OUT_OF_TIME)
    if len(attempt.problem.jobs) > MAX_PACKED_JOBS:
        attempt.reasons.append(f"over {MAX_PACKED_JOBS} jobs keep their greedy placement")
        return _ended(attempt, Status.FEASIBLE)
    report = guard.pack(
        attempt.problem,
        attempt.objective,
        attempt.best,
        budget_s=budget_s,
        seed=seed,
        most_passes=attempt.most_passes,
        memory_bytes=memory_bytes,
        command=command,
        on_answer=lambda answer: _take(attempt, answer),
    )
    if report.end is ChildEnd.KILLED:
        return _ended(attempt, Status.OUT_OF_TIME)
    if report.end is not ChildEnd.FINISHED:
        attempt.reasons.append(report.detail)
        return _ended(attempt, Status.UNKNOWN)
    is_late = time.monotonic() > attempt.deadline - 2 * guard.PACK_MARGIN_S
    return _ended(attempt, Status.OUT_OF_TIME if is_late else Status.FEASIBLE)


def _ended(attempt: Attempt, status: Status) -> Result:
    if attempt.best is None:
        attempt.reasons.append(NOTHING_FOUND)
        return attempt.end(Status.OUT_OF_TIME if status is Status.OUT_OF_TIME else Status.UNKNOWN)
    return attempt.end(status)


def _take(attempt: Attempt, answer: PackAnswer) -> None:
    match answer:
        case Packed(plan):
            try:
                is_taken = attempt.offer(plan, Source.COLUMNS)
            except (PlanError, KeyError):
                is_taken = False
            if not is_taken:
                attempt.reasons.append("a plan of the solver failed the check and is not used")
        case Certified(bound_class, certificate):
            value = certified_value(attempt.problem, certificate)
            _keep(
                attempt,
                Bound(value, bound_class, Proof.DUALS, attempt.objective, certificate),
            )
        case Searched(value):
            _keep(attempt, Bound(value, BoundClass.COMMON_CYCLE, Proof.SEARCH, attempt.objective))


def _keep(attempt: Attempt, bound: Bound) -> None:
    """Keep a bound instead of the weaker one of its class and proof."""
    rivals = [
        entry
        for entry in attempt.bounds
        if (entry.bound_class, entry.proof) == (bound.bound_class, bound.proof)
    ]
    if all(entry.ticks < bound.ticks for entry in rivals):
        attempt.bounds = [entry for entry in attempt.bounds if entry not in rivals] + [bound]
