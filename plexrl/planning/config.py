"""Settings of the planning loop."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PlanningConfig:
    """When to plan, how long a solve may take, and how the dispatch rule follows a plan."""

    period_s: float = 10.0
    """Seconds between solves where nothing happened: profiles drift slowly."""
    budget_s: float = 5.0
    """Seconds a solve may take; it runs aside, on a plan that is in force."""
    drift_fraction: float = 0.25
    """Change of a phase's median against the plan's that calls for a new one: below it the order
    of a cycle hardly changes."""
    slack: float = 0.5
    """Part of the planned op's duration that a backfilled one may end after its arrival."""
    overdue: float = 0.15
    """Part of its expected arrival by which a planned op may be late before others go first."""
    max_jobs: int = 8
    """Jobs that may share a group."""
    seed: int = 0
    """Seed of the solver: same input, same plan."""
