"""What a tracker is told: a job begins, an iteration was committed, a job ended."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from solver.trace import IterationRecord


class Tracker(Protocol):
    """Writes the metrics of jobs somewhere; called from one thread."""

    def begin(self, job: str, settings: Mapping[str, object]) -> None:
        """A job begins; `settings` are what a person wants to compare runs by."""
        ...

    def log(self, record: IterationRecord) -> None:
        """An iteration of a job that began was committed."""
        ...

    def end(self, job: str) -> None:
        """A job ended; nothing more of it follows."""
        ...

    def close(self) -> None:
        """Nothing follows at all: flush and let go."""
        ...


def numbers_of(record: IterationRecord) -> dict[str, float]:
    """Metrics of an iteration with its duration in seconds."""
    return {**dict(record.metrics), "duration_s": record.ended_s - record.started_s}
