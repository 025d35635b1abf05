"""Where a job may start from, other than a model folder: a version of another job."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StartVersion:
    """A committed version of another job that a job goes on from: weights, optimizer, cursor."""

    job: str
    version: int
    """Of each of its trainable models: count of their train functions."""
    store: str = ""
    """Store it lies in; empty: the one the new job commits to."""

    def __str__(self) -> str:
        return f"{self.store}:" * bool(self.store) + f"{self.job}@{self.version}"
