"""What a service tells the scheduler side: when a lease began and ended, and what it moved."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from dataflow.calls import Trained
from plexrl.core.states import StoreUse, Tier, Traffic
from solver.trace import Outcome


@dataclass(frozen=True, slots=True)
class ServiceSnapshot:
    """A service at one moment."""

    traffic: tuple[Traffic, ...] = ()
    host_used_bytes: int = 0
    host_budget_bytes: int = 0
    resident: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Tier → states in it, as ``job/model@version``."""
    engine_pid: int | None = None
    num_engine_starts: int = 0
    num_engine_restarts: int = 0
    """Starts in the place of an engine that had died."""
    store: StoreUse = field(default_factory=StoreUse)


@dataclass(frozen=True, slots=True)
class LeaseStarted:
    """A function began to use the group."""

    id: str
    group: str
    at_s: float
    """Seconds of the system clock, as all times here."""


@dataclass(frozen=True, slots=True)
class LeaseEnded:
    """A function released the group."""

    id: str
    group: str
    started_s: float
    ended_s: float
    swap_s: float
    """Seconds until its state was on the device."""
    swap_source: Tier
    """Tier the state came from."""
    swap_bytes: int
    outcome: Outcome
    snapshot: ServiceSnapshot
    trained: Trained | None = None
    """What it committed; None for functions that train nothing."""
    ahead_s: float = 0.0
    """Seconds of its work that were done before `started_s`, on the idle group."""


@dataclass(frozen=True, slots=True)
class JobLetGo:
    """A group was told to let go of a job."""

    job: str
    group: str
    snapshot: ServiceSnapshot
    error: str = ""
    """Why it still holds states that are nowhere else; empty if it holds none."""


Report = LeaseStarted | LeaseEnded | JobLetGo
