"""One planning call under way: its best plan so far, and what is proven."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from solver.bounds import Bound, BoundClass
from solver.objective import Objective, value_of
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
    objective: Objective = Objective.ROUND
    most_passes: int = 1
    """Most passes of a job in the cycle of its group."""
    best: Plan | None = None
    value: int | None = None
    """Value of the best plan."""
    source: Source | None = None
    incumbents: list[Incumbent] = field(default_factory=list)
    bounds: list[Bound] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)

    def offer(self, plan: Plan, source: Source) -> bool:
        """Take a plan if it passes the check and is no dearer than the best; say if it passed."""
        verification = verify(self.problem, plan)
        if not verification.is_valid:
            return False
        value = value_of(self.problem, plan, self.objective)
        if self.value is None or value <= self.value:
            if self.value is None or value < self.value:
                self._note(plan, value, source)
            self.best, self.value, self.source = plan, value, source
        return True

    def _note(self, plan: Plan, value: int, source: Source) -> None:
        seconds = time.monotonic() - self.began
        incumbent = Incumbent(seconds, plan.objective_ticks, source, value, self._bound(plan))
        self.incumbents.append(incumbent)
        self.on_incumbent(incumbent)

    def _bound(self, plan: Plan) -> int | None:
        """The strongest bound so far over all placements that admits a plan."""
        return Result(Status.UNKNOWN, 0.0, plan, bounds=tuple(self.bounds)).bound_ticks

    def _refutes(self, bound: Bound) -> bool:
        """Whether the best plan, being of the bound's class, is below it."""
        if self.value is None or self.best is None or bound.ticks <= self.value:
            return False
        return bound.bound_class is BoundClass.UNIVERSAL or not self.best.has_repeats

    def end(self, status: Status) -> Result:
        """The result; a bound that a checked plan refutes is a fault of the solver and dropped."""
        bounds = [bound for bound in self.bounds if not self._refutes(bound)]
        if len(bounds) < len(self.bounds):
            self.reasons.append("a bound above the objective of a checked plan was dropped")
        result = Result(
            status=status,
            seconds=time.monotonic() - self.began,
            plan=self.best,
            source=self.source,
            bounds=tuple(bounds),
            reason="; ".join(self.reasons),
            incumbents=tuple(self.incumbents),
            objective=self.objective,
            value=self.value,
        )
        bound = result.bound
        # Common cycles alone say nothing about the repeated passes that were asked for too.
        is_wide = bound is not None and bound.bound_class is BoundClass.UNIVERSAL
        is_proven = (
            self.best is not None
            and bound is not None
            and bound.ticks == self.value
            and (is_wide or self.most_passes == 1)
        )
        return replace(result, status=Status.OPTIMAL) if is_proven else result
