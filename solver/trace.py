"""The execution log: one record per lease, read by verify, pages, tables and exports."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from enum import StrEnum


class Outcome(StrEnum):
    """How a lease ended."""

    DONE = "done"
    FAILED = "failed"
    YIELDED = "yielded"
    """It gave its group up in the middle; the rest of the function is another lease."""
    LOST = "lost"
    """Its worker or engine died."""
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class LeaseRecord:
    """One lease of one LLM function; times in seconds on the cluster's clock."""

    id: str
    job: str
    model: str
    op: str
    iteration: int
    version: int
    """Version of the model the function worked on."""
    group: str
    ready_s: float
    """When its inputs were there."""
    started_s: float
    """When the lease began on the group."""
    ended_s: float
    swap_s: float
    """Seconds of the lease spent bringing the state to the device."""
    swap_source: str
    """Tier the state came from: ``device`` (was there), ``host`` or ``store``."""
    swap_bytes: int
    outcome: Outcome = Outcome.DONE
    ahead_s: float = 0.0
    """Seconds of the function's work that were done before the lease, while its group was idle."""

    @property
    def held_s(self) -> float:
        """Length of the lease."""
        return self.ended_s - self.started_s

    @property
    def busy_s(self) -> float:
        """Seconds of work: the lease without the swap, and what was done ahead of it."""
        return self.held_s - self.swap_s + self.ahead_s

    def to_json(self) -> dict[str, object]:
        """The record as JSON types."""
        return {**asdict(self), "outcome": str(self.outcome)}


@dataclass(frozen=True, slots=True)
class IterationRecord:
    """One committed iteration of a job; times in seconds on the cluster's clock."""

    job: str
    iteration: int
    started_s: float
    ended_s: float
    metrics: tuple[tuple[str, float], ...] = ()


def busy_s(records: Iterable[LeaseRecord]) -> float:
    """Seconds of work of leases, swaps left out."""
    return sum(record.busy_s for record in records)
