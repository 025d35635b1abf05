"""The one definition of *saving*, for demo, simulator and dashboard alike."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from solver.errors import SolverError


@dataclass(frozen=True, slots=True)
class Usage:
    """Groups reserved for a time, and the work done in it."""

    group_s: float
    """Reserved group-seconds, idle time included: a group counts from the moment it is reserved
    until it is given back."""
    work_s: float
    """Work in seconds alone: sum over jobs of iterations × mean iteration time alone."""


def work_done(iterations: Sequence[tuple[int, float]]) -> float:
    """Work in seconds alone.

    Parameters
    ----------
    iterations
        Per job ``(committed iterations, mean iteration seconds alone)``.
    """
    return sum(count * alone_s for count, alone_s in iterations)


def saving(shared: Usage, baseline: Usage) -> float:
    """Share of group-time per unit of work that sharing saves.

    ``1 - (shared group-hours / shared work) / (baseline group-hours / baseline work)``; 0.4 means
    that the same work takes 40 % fewer group-hours than under the named baseline; negative when
    sharing costs more.

    Raises
    ------
    SolverError
        One of the two did no work or reserved nothing.
    """
    for name, usage in (("shared", shared), ("baseline", baseline)):
        if usage.work_s <= 0 or usage.group_s <= 0:
            raise SolverError(
                f"{name} usage has group_s={usage.group_s} and work_s={usage.work_s}; a saving is "
                "defined only where both are positive: let every job finish an iteration first"
            )
    return 1 - (shared.group_s / shared.work_s) / (baseline.group_s / baseline.work_s)
