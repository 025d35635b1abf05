"""What the state manager asks of a durable tier, in a folder or at a URL."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from plexrl.core.states import Manifest, StateRef


class Store(Protocol):
    """Committed versions that outlive every process; safe to use from several threads.

    `ZarrStore` is the one in a folder, `ObjectStore` the one at a URL; both pass one suite.
    What each method promises and raises is said at `plexrl.state.zarr_store.ZarrStore`.
    """

    @property
    def root(self) -> Path | str:
        """Where it lies, for messages."""
        ...

    def write(self, manifest: Manifest, view: memoryview) -> int:
        """Commit a version in one atomic step; returns bytes written."""
        ...

    def read(self, ref: StateRef, into: memoryview) -> Manifest:
        """Read a version into a buffer, verified."""
        ...

    def manifest(self, ref: StateRef) -> Manifest:
        """Manifest of a version."""
        ...

    def contains(self, ref: StateRef) -> bool:
        """Whether the version is committed."""
        ...

    def versions(self, job: str, model: str) -> tuple[int, ...]:
        """Committed versions of a model, oldest first."""
        ...

    def latest(self, job: str, model: str) -> Manifest | None:
        """Manifest of the newest good version."""
        ...

    def retain(self, job: str, model: str, keep: int) -> tuple[StateRef, ...]:
        """Delete all but the newest versions; returns those deleted."""
        ...

    def release_job(self, job: str) -> None:
        """Let another process write this job."""
        ...
