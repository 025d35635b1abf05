"""What faces may see of the scheduler side, without asking over the network.

The faces themselves (pages, metrics) stand above this room, so they are named by configuration
(``plexrl.cluster.faces``) and imported by name when the plugin starts.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from plexrl.clock import Clock
from plexrl.core.status import ClusterStatus
from plexrl.errors import ConfigError
from plexrl.runtime.coordinator import Coordinator
from solver.trace import IterationRecord, LeaseRecord


@dataclass(frozen=True, slots=True)
class ClusterView:
    """Reads the tables of the scheduler side; changes nothing."""

    coordinator: Coordinator
    cpu_phases: Callable[[], Mapping[str, str]]
    """Job → phase of its ordinary task that runs right now."""
    num_errors: Callable[[], int]
    """Errors inside the plugin so far."""
    clock: Clock

    def now_s(self) -> float:
        """Seconds since the cluster's clock began."""
        return self.clock() - self.coordinator.epoch_s

    def status(self) -> ClusterStatus:
        """The cluster as it stands."""
        return self.coordinator.status(self.clock(), self.cpu_phases(), self.num_errors())

    def num_leases(self) -> int:
        """Leases that ended so far."""
        return self.coordinator.ledger.num_ended

    def leases(self, first: int) -> Sequence[LeaseRecord]:
        """Finished leases from the given index on, in order of their end, as far as remembered."""
        return self.coordinator.ledger.leases(first)

    def iterations(self, job: str) -> Sequence[IterationRecord]:
        """Committed iterations of a job, in order."""
        return self.coordinator.jobs[job].iterations.records()

    def plan(self, newest: int | None = None) -> Mapping[str, object]:
        """The plan in force and the history of solves, or so many of the newest, as JSON types."""
        return self.coordinator.planner.plan_json(newest)

    def num_solves(self) -> int:
        """Solves so far."""
        return self.coordinator.planner.chronicle.num_solves

    def solves(self, first: int, most: int) -> Sequence[Mapping[str, object]]:
        """Solves from the given index on, at most so many of the newest, as JSON types."""
        return self.coordinator.planner.chronicle.since(first, most)


def show(faces: str, scheduler: Any, view: ClusterView) -> None:
    """Let the configured module add its pages to the scheduler.

    Parameters
    ----------
    faces
        Dotted name of a module with a function ``install(scheduler, view)``; empty adds nothing.
    scheduler, view
        Handed to that function.

    Raises
    ------
    ConfigError
        There is no such module, or it has no function ``install``.
    """
    if not faces:
        return
    try:
        install = importlib.import_module(faces).install
    except (ImportError, AttributeError) as error:
        raise ConfigError(
            f"plexrl.cluster.faces is {faces!r}: {error}; name a module with a function "
            "install(scheduler, view), or leave it empty to add no pages"
        ) from error
    install(scheduler, view)
