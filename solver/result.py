"""What a solve ended with; no status is ever flattened into another."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from solver.bounds import Bound, BoundClass
from solver.objective import Objective
from solver.plan import Plan


class Status(StrEnum):
    """How a solve ended."""

    OPTIMAL = "optimal"
    """The plan's objective equals a bound over all placements that admits the plan."""
    FEASIBLE = "feasible"
    """The solver finished with a plan, without proof that none is better."""
    INFEASIBLE = "infeasible"
    """Proven: no plan keeps every requirement. The reason says which cannot hold."""
    UNKNOWN = "unknown"
    """The solver ended without an answer, or no plan was found and none was excluded."""
    OUT_OF_TIME = "out_of_time"
    """The budget ended before a proof."""


class Source(StrEnum):
    """Who made the plan."""

    GREEDY = "greedy"
    """Best fit, or the placement search, with timelines built without a solver."""
    COLUMNS = "columns"
    """Column generation chose the sets of jobs that share."""
    CPSAT = "cpsat"
    """At least one timeline is the solver's."""
    REPLANNED = "replanned"
    """The plan before, with only the groups planned anew that something came to or left."""
    PREVIOUS = "previous"
    """The plan before still holds, and nothing better was found."""


@dataclass(frozen=True, slots=True)
class Incumbent:
    """A better plan met on the way."""

    seconds: float
    """Seconds since the solve began."""
    objective_ticks: int
    """Priced group-ticks of a round (`Plan.objective_ticks`), whatever the objective."""
    source: Source
    value: int
    """Value by the objective of the solve."""
    bound: int | None = None
    """What was proven by then: no plan has a smaller value."""

    def to_json(self) -> dict[str, object]:
        """The incumbent as JSON types."""
        return {
            "seconds": self.seconds,
            "objective_ticks": self.objective_ticks,
            "source": str(self.source),
            "value": self.value,
            "bound": self.bound,
        }


@dataclass(frozen=True, slots=True)
class Result:
    """A status, the best verified plan, and what is proven about it."""

    status: Status
    seconds: float
    """Seconds the solve took."""
    plan: Plan | None = None
    """The best plan, verified independently; None if there is none."""
    source: Source | None = None
    """Who made the plan; None without one."""
    bounds: tuple[Bound, ...] = ()
    """Everything proven, of every class."""
    reason: str = ""
    """Plain words: why there is no plan, or why the solver's plan does not serve."""
    incumbents: tuple[Incumbent, ...] = ()
    """Plans met on the way, the greedy one first."""
    objective: Objective = Objective.ROUND
    """What the plan is judged by; bounds and values are in its unit."""
    value: int | None = None
    """Value of the plan; None without one."""

    @property
    def is_verified(self) -> bool:
        """Whether there is a plan: none is given out before it passed `solver.verify`."""
        return self.plan is not None

    @property
    def bound(self) -> Bound | None:
        """The strongest bound over all placements; the wider class among equals."""
        admitting = [
            entry
            for entry in self.bounds
            if entry.bound_class != BoundClass.RESTRICTED and self._admits_plan(entry.bound_class)
        ]
        return max(
            admitting,
            key=lambda entry: (entry.ticks, entry.bound_class == BoundClass.UNIVERSAL),
            default=None,
        )

    def _admits_plan(self, bound_class: BoundClass) -> bool:
        """Whether the plan is of the schedules of a class: repeated passes are no common cycle."""
        return bound_class is BoundClass.UNIVERSAL or self.plan is None or not self.plan.has_repeats

    @property
    def bound_ticks(self) -> int | None:
        """Value of `bound`."""
        return None if self.bound is None else self.bound.ticks

    @property
    def bound_class(self) -> BoundClass | None:
        """Class of `bound`."""
        return None if self.bound is None else self.bound.bound_class

    @property
    def gap(self) -> float | None:
        """(value - bound) ÷ value: what a better plan could at most still gain."""
        return None if self.bound is None else self._gap_to(self.bound)

    def gap_in(self, bound_class: BoundClass) -> float | None:
        """What a better schedule of a class could at most still gain; None if nothing is proven.

        None too where the plan itself is of no such class. A universal bound holds for common
        cycles too, and each of them for the plan's placement.
        """
        if not self._admits_plan(bound_class):
            return None
        classes = list(BoundClass)
        wide_enough = classes[: classes.index(bound_class) + 1]
        holding = [entry for entry in self.bounds if entry.bound_class in wide_enough]
        strongest = max(holding, key=lambda entry: entry.ticks, default=None)
        return None if strongest is None else self._gap_to(strongest)

    def _gap_to(self, bound: Bound) -> float | None:
        if self.plan is None or self.value is None:
            return None
        if self.value == bound.ticks:
            return 0.0
        return (self.value - bound.ticks) / abs(self.value)

    def to_json(self) -> dict[str, object]:
        """The result as JSON types."""
        return {
            "status": str(self.status),
            "source": None if self.source is None else str(self.source),
            "plan": None if self.plan is None else self.plan.to_json(),
            "bound_ticks": self.bound_ticks,
            "bound_class": None if self.bound_class is None else str(self.bound_class),
            "bounds": [entry.to_json() for entry in self.bounds],
            "gap": self.gap,
            "objective": str(self.objective),
            "value": self.value,
            "is_verified": self.is_verified,
            "seconds": self.seconds,
            "reason": self.reason,
            "incumbents": [entry.to_json() for entry in self.incumbents],
        }
