"""Names and payloads of what travels between client, scheduler, drivers and services.

Payloads are frozen values, pickled by us: Dask's streams carry plain types only.
"""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from dataflow.calls import AttachOptions, VersionToken
from plexrl.core.jobs import JobFacts
from solver.trace import IterationRecord, LeaseRecord

SUBMIT = "plexrl_submit"
"""Client → scheduler: place a job and start its driver."""
CANCEL = "plexrl_cancel"
"""Client → scheduler: end a job."""
STATUS = "plexrl_status"
"""Client → scheduler: a `plexrl.core.status.ClusterStatus`."""
JOB = "plexrl_job"
"""Client → scheduler: a `plexrl.core.status.JobStatus`."""
JOBS = "plexrl_jobs"
"""Client → scheduler: names of all jobs."""
WAIT = "plexrl_wait"
"""Client → scheduler: the status of a job, once it has ended or some time has passed."""
METRICS = "plexrl_metrics"
"""Client → scheduler: committed iterations of a job, `solver.trace.IterationRecord`."""
TRACE = "plexrl_trace"
"""Client → scheduler: a `Trace`."""
PLAN = "plexrl_plan"
"""Client → scheduler: the plan in force, as JSON types."""
MODELS = "plexrl_models"
"""Client → scheduler: `CommittedModel` of every model of a job."""
PAUSE = "plexrl_pause"
"""Client → scheduler: let a job rest."""
UNPAUSE = "plexrl_unpause"
"""Client → scheduler: let a paused job go on."""
MOVE = "plexrl_move"
"""Client → scheduler: place a job on another group."""
REPLAY = "plexrl_replay"
"""Client → scheduler: end the iteration of a job that runs and do it again."""
CANCEL_SAMPLE = "plexrl_cancel_sample"
"""Client → scheduler: end one sample of a job."""
DRAIN = "plexrl_drain"
"""Client → scheduler: let no iteration begin on a group."""
UNDRAIN = "plexrl_undrain"
"""Client → scheduler: let iterations begin on a group again."""
APPLY = "plexrl_apply"
"""Client → scheduler: put a plan made elsewhere into force; answers an `AppliedPlan`."""
REPLAN = "plexrl_replan"
"""Client → scheduler: plan now."""

REPORT = "plexrl-report"
"""Service → scheduler: a `plexrl.services.reports.Report`."""
DRIVER = "plexrl-driver"
"""Driver → scheduler: a `DriverEvent`, or of all drivers of a worker a `DriversHere`."""
DRIVE = "plexrl-drive"
"""Scheduler → worker: start a driver for a `Drive`."""
STOP = "plexrl-stop"
"""Scheduler → worker: end the driver of a job."""
ORDER = "plexrl-order"
"""Scheduler → worker: an `Order` for the driver of a job."""
UPCOMING = "plexrl-upcoming"
"""Scheduler → service: `Upcoming`."""
FORETELL = "plexrl-foretell"
"""Scheduler → service: a `plexrl.services.lookahead.Foretold`."""
YIELD = "plexrl-yield"
"""Scheduler → service: let a rollout stop in the middle and give its lease up."""
FORGET = "plexrl-forget"
"""Scheduler → service: let go of a job."""
HOSTED = "plexrl-hosted"
"""Scheduler → service: a `plexrl.services.guests.Hosted`."""
COPY = "plexrl-copy"
"""Scheduler → service: fetch a copy of a version (`plexrl.core.states.StateRef`) soon needed."""

LEND = "plexrl_lend"
"""Service → service: keep a version in host memory until it is given back; a `Loan`."""
READ = "plexrl_read"
"""Service → service: bytes of a loan."""
GIVE_BACK = "plexrl_give_back"
"""Service → service: a loan is over."""
HOLD = "plexrl_hold"
"""Service → service: run nothing while a gang runs."""
LET_GO = "plexrl_let_go"
"""Service → service: the gang is over."""
HOLDS = "plexrl_holds"
"""Service → service: whether a function still runs there."""


@dataclass(frozen=True, slots=True)
class Submission:
    """A job as the client hands it in."""

    facts: JobFacts
    spec: bytes
    """The `dataflow.jobs.JobSpec`, by cloudpickle: only its driver unpacks it."""
    is_resumed: bool = False
    """Whether to go on from what the store holds of this job."""


@dataclass(frozen=True, slots=True)
class Drive:
    """What a worker needs to drive a job."""

    name: str
    spec: bytes
    run: str
    """Tells runs of one job name apart in node keys."""
    is_resumed: bool = False
    """Whether to go on from what the store holds of this job; else finding any is an error."""


@dataclass(frozen=True, slots=True)
class Upcoming:
    """What a group is expected to serve next."""

    prefetch: tuple[str, str]
    """``(job, model)`` to bring to host memory now."""
    order: tuple[tuple[str, str], ...]
    """``(job, model)`` by expected next use, soonest first."""


@dataclass(frozen=True, slots=True)
class DriverStarted:
    """The driver attached the job's models; iterations begin."""

    job: str
    at_s: float
    """Seconds of the system clock."""
    index: int
    """First iteration it runs: those before it are committed."""
    tokens: tuple[VersionToken, ...] = ()
    """Versions that are committed."""
    earlier: tuple[IterationRecord, ...] = ()
    """Those before it as far as the store remembers them; times in seconds of the system clock."""


@dataclass(frozen=True, slots=True)
class IterationCommitted:
    """An iteration and all versions it trained are committed."""

    record: IterationRecord
    """Times in seconds of the system clock."""
    tokens: tuple[VersionToken, ...]
    """Versions it committed."""


@dataclass(frozen=True, slots=True)
class DriverEnded:
    """The driver is done with its job."""

    job: str
    at_s: float
    error: str
    """Why it failed; empty if it finished."""
    why_early: str = ""
    """Why it finished before its last iteration; empty unless it did."""


@dataclass(frozen=True, slots=True)
class DriverSteppedAside:
    """The driver ended because it was told to; its job has not."""

    job: str


@dataclass(frozen=True, slots=True)
class DriverWaits:
    """The driver cannot go on by itself now, and tries again and again."""

    job: str
    reason: str
    """In plain words what it waits for."""


@dataclass(frozen=True, slots=True)
class DriversHere:
    """Which drivers live in a worker; told again and again."""

    jobs: tuple[str, ...]


DriverEvent = DriverStarted | IterationCommitted | DriverWaits | DriverEnded | DriverSteppedAside


class Order(StrEnum):
    """What a driver may be told."""

    STEP_ASIDE = "step aside"
    """End once the iteration that runs has committed."""
    STEP_ASIDE_NOW = "step aside now"
    """End at once; the iteration that runs will be done again."""
    REPLAY = "replay"
    """Go back to the last committed version and do the iteration again."""


@dataclass(frozen=True, slots=True)
class AppliedPlan:
    """What putting a plan into force changes."""

    moves: tuple[tuple[str, str, str], ...]
    """``(job, from, to)`` of the jobs that move once their iteration has ended."""
    cycles_s: tuple[tuple[str, float], ...]
    """Group → seconds of its cycle, with the lengths measured in this cluster."""
    slowdowns: tuple[tuple[str, float], ...]
    """Job → predicted iteration time shared ÷ alone."""
    ruled: tuple[str, ...] = ()
    """Groups that serve the shortest first, as a plan of several pools says."""


@dataclass(frozen=True, slots=True)
class CommittedModel:
    """A model of a job, as far as it is committed."""

    options: AttachOptions
    """How it is opened."""
    token: VersionToken | None
    """Its newest committed version; None before the first iteration."""


@dataclass(frozen=True, slots=True)
class Trace:
    """The execution log so far; times in seconds since the cluster's clock began."""

    leases: tuple[LeaseRecord, ...]
    iterations: tuple[IterationRecord, ...]
    earlier: tuple[IterationRecord, ...] = ()
    """Iterations that jobs committed in earlier lives of the cluster: at negative times."""


def pack(value: object) -> bytes:
    """A payload as bytes."""
    return pickle.dumps(value)


def unpack(payload: bytes) -> Any:
    """Inverse of `pack`; payloads come from processes of the same cluster."""
    return pickle.loads(payload)  # noqa: S301
