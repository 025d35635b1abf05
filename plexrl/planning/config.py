"""How often and how hard the planner works."""

from __future__ import annotations

import math
from dataclasses import dataclass

from plexrl.errors import ConfigError


@dataclass(frozen=True, slots=True)
class PlanningConfig:
    """Settings of the planning loop.

    Raises
    ------
    ConfigError
        A value is out of range.
    """

    period_s: float = 10.0
    """Longest time between two solves while jobs run: profiles of a few iterations old still
    describe the jobs."""
    budget_s: float = 5.0
    """Seconds a solve may take: two to six jobs need milliseconds, the start of the solver's
    process about a second on an idle machine and several on a busy one."""
    drift_fraction: float = 0.25
    """Relative change of an op's length against the plan that calls for a new one: below it the
    order hardly ever changes."""
    slack: float = 0.1
    """`PlanOrderWithBackfill.slack`."""
    overdue: float = 0.3
    """`PlanOrderWithBackfill.overdue`."""
    yield_gain: float = 2.0
    """`YieldRule.gain`."""
    yield_quantum_s: float = 0.2
    """`YieldRule.quantum_ticks`, in seconds."""
    max_yields: int = 8
    """`YieldRule.max_yields`; 0: rollouts keep their group to the end."""
    max_jobs: int = 8
    """Most jobs placed on one group: with more, iterations wait longer than they run."""
    is_rearranging: bool = True
    """Whether jobs whose groups are left to the planner are moved when that pays."""
    seed: int = 0
    """Of the solver: the same problem and seed give the same plan."""

    def __post_init__(self) -> None:
        for name, is_zero_allowed in (
            ("period_s", False),
            ("budget_s", True),
            ("drift_fraction", False),
            ("slack", True),
            ("overdue", True),
            ("yield_gain", False),
            ("yield_quantum_s", True),
        ):
            value = getattr(self, name)
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            if not is_number or not math.isfinite(value) or value < 0:
                raise ConfigError(
                    f"plexrl.planning.{name} is {value!r}; give a finite number of at least 0"
                )
            if value == 0 and not is_zero_allowed:
                raise ConfigError(f"plexrl.planning.{name} is 0; give a number above 0")
        if not isinstance(self.is_rearranging, bool):
            raise ConfigError(
                f"plexrl.planning.is_rearranging is {self.is_rearranging!r}; give true or false"
            )
        for name, least in (("max_jobs", 1), ("max_yields", 0), ("seed", 0)):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < least:
                raise ConfigError(
                    f"plexrl.planning.{name} is {value!r}; give a whole number of at least {least}"
                )
