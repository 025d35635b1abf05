"""What happened, as the arbiter is told: frozen values, times in ticks of 1 ms.

Simulator and runtime feed the same events, so a plan means the same to both.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from solver.dispatch.shortest import ShortestFirst

TICKS_PER_S = 1000
"""One tick is a millisecond: finer than any handoff, coarse enough for integers everywhere."""


@dataclass(frozen=True, slots=True)
class FunctionRef:
    """One LLM function that wants a lease."""

    id: str
    """Unique: the Dask key in the runtime."""
    job: str
    op: str
    """Name within the job's iteration, e.g. ``actor.rollout.0``."""
    iteration: int
    groups: tuple[str, ...]
    """Groups it needs, all at once (more than one: a gang); with `is_any` one of them."""
    duration_ticks: int
    """Expected length of the lease."""
    is_yieldable: bool = False
    """Whether it can stop in the middle and go on later."""
    served_ticks: int = 0
    """What it has taken in leases it yielded."""
    swap_ticks: int = 0
    """Expected time to bring its state back after another job had the group."""
    is_any: bool = False
    """Whether any one of its groups will do; the arbiter picks one that is free. After it yielded
    only the one it left will do, as long as that is there: what it keeps lies on it."""


@dataclass(frozen=True, slots=True)
class GroupAdded:
    """A group can be leased from now on."""

    group: str


@dataclass(frozen=True, slots=True)
class GroupLost:
    """A group is gone; leases on it have ended."""

    group: str


@dataclass(frozen=True, slots=True)
class JobLeft:
    """A job will ask for nothing more."""

    job: str


@dataclass(frozen=True, slots=True)
class Ready:
    """A function has its inputs and wants its lease."""

    function: FunctionRef


@dataclass(frozen=True, slots=True)
class Started:
    """An admitted function began to use its group."""

    id: str


@dataclass(frozen=True, slots=True)
class Ended:
    """A function released its group: done, failed or lost with its worker."""

    id: str


@dataclass(frozen=True, slots=True)
class Yielded:
    """A function stopped in the middle and released its groups; it will be ready again."""

    id: str


@dataclass(frozen=True, slots=True)
class Withdrawn:
    """A function that was ready or admitted, but has not started, was cancelled."""

    id: str


@dataclass(frozen=True, slots=True)
class Slot:
    """One entry of a dispatch order."""

    job: str
    op: str
    duration_ticks: int
    """Expected length of the lease."""
    wait_ticks: int
    """Expected time without a group between its end and the job's next op."""


@dataclass(frozen=True, slots=True)
class DispatchPlan:
    """Order in which groups shall serve ops, repeated cyclically.

    Ops that stand in no order are served as backfill.
    """

    orders: Mapping[str, tuple[Slot, ...]] = field(default_factory=dict)
    """Group → cyclic order."""
    alone_ticks: Mapping[str, int] = field(default_factory=dict)
    """Job → length of its cycle alone, where that is not the sum of its slots: part of it runs
    ahead."""
    rules: Mapping[str, ShortestFirst] = field(default_factory=dict)
    """Group → who is next there, in place of the arbiter's own rule."""


@dataclass(frozen=True, slots=True)
class PlanAdopted:
    """A new dispatch plan is in force."""

    plan: DispatchPlan


@dataclass(frozen=True, slots=True)
class Woke:
    """A moment the arbiter asked to be woken at (`instructions.WakeAt`) has come."""


Event = (
    GroupAdded
    | GroupLost
    | JobLeft
    | Ready
    | Started
    | Ended
    | Yielded
    | Withdrawn
    | PlanAdopted
    | Woke
)
