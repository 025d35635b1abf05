"""The page of the plan: how good it is, why it was made, and whether it came true."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from plexrl.core.status import ClusterStatus

SOLVES_SHOWN = 50
"""Past solves listed, newest first."""

CYCLES_SHOWN = 24
"""Jobs compared at most, so that the solves below stay in sight; the headline counts all."""


@dataclass(frozen=True, slots=True)
class PlanSummary:
    """The plan in force."""

    status: str
    objective_s: float | None
    bound_s: float | None
    bound_class: str
    gap: float | None
    """(objective - bound) / objective; 0 is proven optimal in the bound's class."""
    is_verified: bool
    age_s: float | None
    num_solves: int
    num_moves: int
    """Times a plan put a job on other groups."""
    reason: str


@dataclass(frozen=True, slots=True)
class SolveLine:
    """One solve."""

    number: int
    reason: str
    status: str
    objective_s: float | None
    bound_s: float | None
    seconds: float
    is_verified: bool
    adopted_s: float
    ratio: float | None
    """Median of its jobs' actual over predicted cycles; None until one is known."""


@dataclass(frozen=True, slots=True)
class CycleLine:
    """A job's cycle under the plan in force: predicted against actual."""

    job: str
    predicted_s: float | None
    actual_s: float | None
    num_iterations: int

    @property
    def ratio(self) -> float | None:
        """Actual over predicted; None until both are known."""
        if not self.predicted_s or self.actual_s is None:
            return None
        return self.actual_s / self.predicted_s

    @property
    def error(self) -> float:
        """How far it is off, as much for half as for twice; 0 while not known."""
        return abs(math.log(self.ratio)) if self.ratio else 0.0


def plan_summary(status: ClusterStatus) -> PlanSummary:
    """The plan in force in a few numbers."""
    plan = status.plan
    gap = None
    if plan.objective_s and plan.bound_s is not None:
        gap = max(0.0, (plan.objective_s - plan.bound_s) / plan.objective_s)
    return PlanSummary(
        status=plan.status,
        objective_s=plan.objective_s,
        bound_s=plan.bound_s,
        bound_class=plan.bound_class,
        gap=gap,
        is_verified=plan.is_verified,
        age_s=None if plan.adopted_s is None else max(0.0, status.now_s - plan.adopted_s),
        num_solves=plan.num_solves,
        num_moves=plan.num_moves,
        reason=plan.reason,
    )


class SolveLog:
    """Solves as they are read, one after the other: only the one in force still changes."""

    def __init__(self) -> None:
        self._past: deque[SolveLine] = deque(maxlen=SOLVES_SHOWN - 1)
        self._in_force: Mapping[str, Any] | None = None
        self.num_past = 0
        """Solves that are no longer in force, those dropped included."""

    def update(self, rows: Sequence[Mapping[str, Any]], num_solves: int) -> None:
        """Take what `Source.solves` tells from `num_past` on.

        Parameters
        ----------
        rows
            Oldest first; the last is in force.
        num_solves
            Solves so far.
        """
        if rows:
            self._past.extend(_solve_line(row) for row in rows[:-1])
            self._in_force = rows[-1]
            self.num_past = num_solves - 1

    def lines(self) -> list[SolveLine]:
        """At most `SOLVES_SHOWN` solves, newest first."""
        newest = [] if self._in_force is None else [_solve_line(self._in_force)]
        return [*newest, *reversed(self._past)]

    def cycles(self) -> list[CycleLine]:
        """Predicted against actual cycles of all jobs under the plan in force, worst first."""
        found = [] if self._in_force is None else _cycles(self._in_force)
        return sorted(found, key=lambda line: -line.error)


def _solve_line(row: Mapping[str, Any]) -> SolveLine:
    return SolveLine(
        number=int(row["number"]),
        reason="; ".join(text for text in (row["reason"], row["note"]) if text),
        status=str(row["status"]),
        objective_s=row["objective_s"],
        bound_s=row["bound_s"],
        seconds=float(row["seconds"]),
        is_verified=bool(row["verified"]),
        adopted_s=float(row["adopted_s"]),
        ratio=median_ratio(_cycles(row)),
    )


def median_ratio(lines: Iterable[CycleLine]) -> float | None:
    """Median of actual over predicted; None where no job has both."""
    known = [line.ratio for line in lines if line.ratio is not None]
    return median(known) if known else None


def _cycles(solve: Mapping[str, Any]) -> list[CycleLine]:
    return [
        CycleLine(
            job=str(job),
            predicted_s=cycle["predicted_s"],
            actual_s=cycle["actual"]["mean_s"],
            num_iterations=int(cycle["actual"]["iterations"]),
        )
        for job, cycle in solve["cycles"].items()
    ]
