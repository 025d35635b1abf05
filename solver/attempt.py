"""One planning call under way: its best plan so far, and what is proven."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from solver.bounds import Bound
from solver.plan import Plan
from solver.problem import Problem
from solver.result import Incumbent, Result, Source, Status
from solver.verify import verify

OnIncumbent = Callable[[Incumbent], None]


@dataclass(slots=True, eq=False)
class Attempt:
    """One call of `plan` under way."""

    problem: Problem
    began: float
    deadline: float
    on_incumbent: OnIncumbent
    best: Plan | None = None
    source: Source | None = None
    incumbents: list[Incumbent] = field(default_factory=list)
    bounds: list[Bound] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)

    def offer(self, plan: Plan, source: Source) -> bool:
        """Take a plan if it passes the check and is no dearer than the best; say if it passed."""
        verification = verify(self.problem, plan)
        if not verification.is_valid:
            return False
        if self.best is None or plan.objective_ticks <= self.best.objective_ticks:
            if self.best is None or plan.objective_ticks < self.best.objective_ticks:
                self._note(plan.objective_ticks, source)
            self.best, self.source = plan, source
        return True

    def _note(self, objective_ticks: int, source: Source) -> None:
        incumbent = Incumbent(time.monotonic() - self.began, objective_ticks, source)
        self.incumbents.append(incumbent)
        self.on_incumbent(incumbent)

    def end(self, status: Status) -> Result:
        """The result; a bound that a checked plan refutes is a fault of the solver and dropped."""
        best = self.best
        bounds = [
            bound for bound in self.bounds if best is None or bound.ticks <= best.objective_ticks
        ]
        if len(bounds) < len(self.bounds):
            self.reasons.append("a bound above the objective of a checked plan was dropped")
        result = Result(
            status=status,
            seconds=time.monotonic() - self.began,
            plan=best,
            source=self.source,
            bounds=tuple(bounds),
            reason="; ".join(self.reasons),
            incumbents=tuple(self.incumbents),
        )
        is_proven = best is not None and result.bound_ticks == best.objective_ticks
        return replace(result, status=Status.OPTIMAL) if is_proven else result
