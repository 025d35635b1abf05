"""The shortest goes first, as long as no job nears its limit: for groups of several kinds."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from solver.dispatch.views import Candidate, Choice, GroupView, Run
from solver.errors import ProblemError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Amount = TypeVar("Amount", float, "NDArray[np.float64]")


@dataclass(frozen=True, slots=True)
class ShortestFirst:
    """Grant the group to the shortest function, as long as no job lags more than it tolerates.

    Short ones first keep more jobs on the move between groups of several kinds; beyond its
    tolerance a job goes first, the one that exceeds it most before others. On its way there its
    functions count as shorter and shorter (`fade`). Where lengths are
    measured in iterations of their jobs, what serves most work per second of the group goes first.
    """

    tolerances: Mapping[str, float]
    """Job → time it waited for groups ÷ its time alone that it tolerates, above 0; a job that is
    not named tolerates as much as it must."""
    units: Mapping[str, float] = field(default_factory=dict)
    """Job → ticks that the lengths of its functions are divided by, above 0; 1 if not named."""

    def __post_init__(self) -> None:
        for job, tolerance in self.tolerances.items():
            if not 0 < tolerance < math.inf:
                raise ProblemError(
                    f"job {job!r} has the tolerance {tolerance}; give a finite lag above 0, such "
                    "as 0.4 for a slowdown of 1.4"
                )
        if bad := [job for job, unit in self.units.items() if not 0 < unit < math.inf]:
            raise ProblemError(
                f"job {bad[0]!r} has the unit {self.units[bad[0]]}; give finite ticks above 0"
            )

    def choose(self, view: GroupView) -> Choice:
        """Decide for one group whose queue is not empty."""
        return Run(max(view.queue, key=self._claim).id)

    def _claim(self, candidate: Candidate) -> tuple[float, float]:
        lag = candidate.lag
        tolerance = self.tolerances.get(candidate.job, math.inf)
        if lag > tolerance:
            return lag / tolerance, 0.0
        length = candidate.duration_ticks / self.units.get(candidate.job, 1.0)
        return 0.0, -length * fade(lag, tolerance)


def fade(lag: Amount, tolerance: Amount) -> Amount:
    """Share of its length that a function counts where the shortest goes first.

    Nearly all of it while its job lags little, nothing of it where the job lags as much as it
    tolerates: a job that is in danger goes before others while there is time, and not only once
    everybody is.
    """
    used = lag / tolerance
    return 1.0 - used * used * used * used
