"""Snapshots for people: what the display, the table and the dashboard show."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from plexrl.core.states import StoreUse, Traffic


class JobState(StrEnum):
    """Life of a job; the last three are terminal."""

    STARTING = "starting"
    RUNNING = "running"
    PAUSED = "paused"
    """An operator wants it to rest: it holds no group and its states are in the store."""
    FINISHED = "finished"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def is_terminal(self) -> bool:
        """Whether the job will not run again by itself."""
        return self in {JobState.FINISHED, JobState.FAILED, JobState.CANCELLED}

    @property
    def is_active(self) -> bool:
        """Whether the job wants to run."""
        return self in {JobState.STARTING, JobState.RUNNING}


@dataclass(frozen=True, slots=True)
class JobStatus:
    """One job at one moment."""

    name: str
    state: JobState
    group: str
    """Group it is placed on; of several its home first, joined by ``+``; empty without one."""
    iteration: int
    """Committed iterations."""
    iterations: int
    """Iterations it shall run."""
    phase: str
    """Op that runs or waits right now, e.g. ``actor.rollout.0``, or ``reward`` and the like."""
    waits_for: str
    """In plain words what it waits for; empty while it holds a lease."""
    reward_first: float | None
    reward_last: float | None
    metrics: Mapping[str, float]
    """Metrics of the last committed iteration."""
    iteration_s: float | None
    """Mean seconds of its iterations so far."""
    slowdown_limit: float
    started_s: float
    """Seconds on the cluster's clock."""
    ended_s: float | None
    error: str = ""
    """Why it failed."""
    why_early: str = ""
    """Why it finished before its last iteration; empty unless it did."""
    asked: str = ""
    """What an operator asked of it that is still to come, with the reason; empty if nothing is."""

    @property
    def waiting(self) -> str:
        """What it waits for and what was asked of it, in one line."""
        return "; ".join(text for text in (self.asked, self.waits_for) if text)

    @property
    def left_s(self) -> float | None:
        """Seconds until it ends, at the pace so far; None if it ended or has no pace yet."""
        if self.state.is_terminal or self.iteration_s is None:
            return None
        return max(0, self.iterations - self.iteration) * self.iteration_s


@dataclass(frozen=True, slots=True)
class GroupStatus:
    """One group at one moment."""

    name: str
    worker: str
    """Address of its Dask worker; empty while there is none."""
    holder: str
    """Job that holds the lease; empty if idle."""
    function: str
    """Op that runs under the lease."""
    held_for_s: float
    busy_s: float
    """Seconds of leases so far."""
    num_waiting: int
    """Ready functions that wait for this group."""
    traffic: tuple[Traffic, ...]
    host_used_bytes: int
    host_budget_bytes: int
    resident: Mapping[str, tuple[str, ...]]
    """Tier → states (``job/model@version``) in it."""
    engine_pid: int | None = None
    num_engine_starts: int = 0
    num_engine_restarts: int = 0
    """Starts in the place of an engine that had died; a group has one for each architecture."""
    store: StoreUse = field(default_factory=StoreUse)
    draining: str = ""
    """Why no job may begin an iteration here; empty if jobs may."""

    @property
    def warning(self) -> str:
        """A trouble that goes on, e.g. the last failed write to the store; empty if none."""
        return self.store.error


@dataclass(frozen=True, slots=True)
class PlanStatus:
    """The plan in force."""

    status: str = "none"
    """Solver status (optimal, feasible, …), ``greedy`` for the greedy plan, ``none`` before."""
    objective_s: float | None = None
    """Cycle length of the plan in seconds."""
    bound_s: float | None = None
    """Proven lower bound of the cycle length."""
    bound_class: str = ""
    is_verified: bool = False
    num_solves: int = 0
    reason: str = ""
    """Why the planner last solved."""
    adopted_s: float | None = None
    order: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Group → planned dispatch order, as ``job:op``."""
    num_moves: int = 0
    """Times a plan put a job on other groups."""


@dataclass(frozen=True, slots=True)
class ClusterStatus:
    """The cluster at one moment."""

    now_s: float
    """Seconds since the cluster's clock began."""
    jobs: tuple[JobStatus, ...]
    groups: tuple[GroupStatus, ...]
    plan: PlanStatus
    num_errors: int = 0
    """Errors inside the scheduler plugin so far (each is logged; 0 is right)."""
