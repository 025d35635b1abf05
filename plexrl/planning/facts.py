"""What the planner is told about jobs and groups when they arrive."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from plexrl.core.placement import Arrangement
from plexrl.errors import JobError


@dataclass(frozen=True, slots=True)
class PlannedJob:
    """A job as the planner sees it.

    Raises
    ------
    JobError
        A value makes no sense.
    """

    name: str
    ops: tuple[tuple[str, float | None, float | None], ...] = ()
    """Hints, in the order of the iteration: ``(op, seconds of its lease, seconds without a group
    after it)``, None where unknown. They serve until the ops were measured; a job without them is
    planned once its first iteration is over."""
    memory_bytes: int = 0
    """Memory its states take on its group."""
    slowdown_limit: float = 2.0
    """Largest allowed mean iteration time shared ÷ alone."""
    weight: float = 1.0
    """Importance beside other jobs; only ratios count."""
    arrangement: Arrangement = Arrangement.ANY
    """Where its phases may run."""
    pins: Mapping[str, str] = field(default_factory=dict)
    """Phase, or model and phase, → group it must run on."""
    copy_bytes: int = 0
    """Memory that copies of its weights take on a group that samples for it."""
    staleness: int = 0
    """Iterations by which its rollouts may run ahead of its training."""
    iterations: int | None = None
    """Iterations it shall run; None: no end is known."""
    engines: frozenset[str] = frozenset()
    """Engines that its models need; names are equal where jobs share one."""

    def __post_init__(self) -> None:
        names = [op for op, _, _ in self.ops]
        if len(set(names)) != len(names):
            raise JobError(f"job {self.name!r} has hints for ops {names}; name each op once")
        for op, duration_s, wait_s in self.ops:
            is_sensible = duration_s is None or 0 < duration_s < math.inf
            if not is_sensible or not (wait_s is None or 0 <= wait_s < math.inf):
                raise JobError(
                    f"job {self.name!r} hints {duration_s} s for op {op!r} and {wait_s} s after "
                    "it; give finite seconds, above 0 for the op and at least 0 after it"
                )
        if self.memory_bytes < 0:
            raise JobError(f"job {self.name!r} needs {self.memory_bytes} bytes; give at least 0")
        if not 1 <= self.slowdown_limit < math.inf:
            raise JobError(
                f"job {self.name!r} has slowdown_limit={self.slowdown_limit}; give a finite number "
                "of at least 1 (1: as fast as alone)"
            )
        if not 0 < self.weight < math.inf:
            raise JobError(f"job {self.name!r} has weight={self.weight}; give a number above 0")


Warm = Mapping[str, frozenset[tuple[bool, str]]]
"""Group → engines that ran there: whether for a job at home there, and which."""


@dataclass(frozen=True, slots=True)
class GroupFacts:
    """A group as the planner sees it."""

    name: str
    memory_bytes: int
    """Memory for the states of the jobs placed on it."""
    max_jobs: int | None = None
    """Most jobs placed on it at once; None: no limit."""
