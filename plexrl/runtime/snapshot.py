"""Makes the snapshot that people see out of the tables of the scheduler side."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import chain

from plexrl.core.jobs import JobEntry, JobTable
from plexrl.core.relocations import Aim, Relocation, RelocationTable, Step
from plexrl.core.status import ClusterStatus, GroupStatus, JobState, JobStatus, PlanStatus
from plexrl.runtime.groups import GroupRow, GroupTable
from plexrl.runtime.ledger import Ledger
from plexrl.spelling import as_counted, counted
from solver.dispatch.arbiter import Arbiter
from solver.dispatch.events import TICKS_PER_S
from solver.trace import IterationRecord

MAX_ENDED = 1_000
"""Ended jobs in the status of a cluster: more than anybody looks through. Older ones are there by
name."""


@dataclass(frozen=True, slots=True)
class Tables:
    """What a snapshot is made of."""

    jobs: JobTable
    groups: GroupTable
    ledger: Ledger
    arbiter: Arbiter
    relocations: RelocationTable


@dataclass(frozen=True, slots=True)
class Moment:
    """When a snapshot is made, and what only Dask knows at that moment."""

    now_s: float
    """Seconds since the cluster's clock began."""
    now_ticks: int
    epoch_s: float
    """Start of the cluster's clock, in seconds of the system clock."""
    cpu_phases: Mapping[str, str]
    """Job → phase of its ordinary task that runs right now."""
    num_errors: int
    """Errors inside the plugin so far."""

    @classmethod
    def at(
        cls, now_s: float, epoch_s: float, cpu_phases: Mapping[str, str], num_errors: int
    ) -> Moment:
        """A moment in seconds of the system clock."""
        since_s = now_s - epoch_s
        ticks = max(0, round(since_s * TICKS_PER_S))
        return cls(since_s, ticks, epoch_s, cpu_phases, num_errors)


def cluster_status(tables: Tables, plan: PlanStatus, moment: Moment) -> ClusterStatus:
    """The cluster as people shall see it, with the newest of the jobs that have ended."""
    reasons = {w.job: (w.op, w.reason) for w in tables.arbiter.waiting(moment.now_ticks)}
    return ClusterStatus(
        now_s=moment.now_s,
        jobs=tuple(
            _job_status(tables, entry, reasons, moment) for entry in tables.jobs.newest(MAX_ENDED)
        ),
        groups=tuple(
            _group_status(tables, name, row, moment)
            for name in sorted(tables.groups.names(), key=as_counted)
            if (row := tables.groups.get(name)) is not None
        ),
        plan=plan,
        num_errors=moment.num_errors,
    )


def job_status(tables: Tables, job: str, moment: Moment) -> JobStatus:
    """One job as people shall see it; costs the same however many others there are.

    Raises
    ------
    JobError
        There is no such job.
    """
    entry = tables.jobs[job]
    waiting = tables.arbiter.waiting(moment.now_ticks, job)
    return _job_status(tables, entry, {w.job: (w.op, w.reason) for w in waiting}, moment)


def _job_status(
    tables: Tables, entry: JobEntry, reasons: Mapping[str, tuple[str, str]], moment: Moment
) -> JobStatus:
    phase, waits_for = _phase(tables, entry, reasons, moment)
    relocation = tables.relocations.get(entry.facts.name)
    iterations = entry.iterations
    oldest = chain(() if iterations.first is None else (iterations.first,), iterations)
    return JobStatus(
        name=entry.facts.name,
        state=entry.state,
        group="" if _is_nowhere(entry, relocation) else str(entry.placement),
        iteration=entry.num_committed,
        iterations=entry.facts.iterations,
        phase=phase,
        waits_for=waits_for,
        reward_first=_first_reward(chain(entry.earlier, oldest)),
        reward_last=_first_reward(reversed(iterations)),
        metrics={} if iterations.last is None else dict(iterations.last.metrics),
        iteration_s=iterations.mean_s,
        slowdown_limit=entry.facts.slowdown_limit,
        started_s=entry.arrived_s if entry.started_s is None else entry.started_s,
        ended_s=entry.ended_s,
        error=entry.error,
        why_early=entry.why_early,
        asked=str(relocation or tables.relocations.resampling(entry.facts.name) or ""),
    )


def _is_nowhere(entry: JobEntry, relocation: Relocation | None) -> bool:
    """Whether a job has no group: it rests, or waits for room."""
    if relocation is None:
        return entry.state is JobState.PAUSED
    return relocation.step is Step.WAITING


def _first_reward(iterations: Iterable[IterationRecord]) -> float | None:
    for record in iterations:
        for key, value in record.metrics:
            if key == "reward_mean":
                return value
    return None


def _phase(
    tables: Tables, entry: JobEntry, reasons: Mapping[str, tuple[str, str]], moment: Moment
) -> tuple[str, str]:
    """What a job does right now, and what it waits for."""
    name = entry.facts.name
    if entry.state.is_terminal:
        return "", ""
    relocation = tables.relocations.get(name)
    is_resting = entry.state is JobState.PAUSED
    if is_resting and (relocation is None or relocation.aim is Aim.PAUSE):
        why = "" if relocation else tables.relocations.why_resting(name)
        return "", f"plexrl unpause {name}" + (f" ({why})" if why else "")
    running = _running(tables, entry)
    if running:
        return running, ""
    if tables.relocations.has_left(name):
        return "", "a group"
    if entry.waits_for:
        return "", entry.waits_for
    if name in reasons:
        return reasons[name]
    if name in moment.cpu_phases:
        phase = moment.cpu_phases[name]
        return phase, f"{phase} on a CPU worker"
    away = [group for group in entry.placement.groups if tables.groups.get(group) is None]
    if away:
        return "", f"a worker for {away[0]}"
    if not entry.driver:
        return "", "a worker without a group, for its driver"
    return "", "its driver"


def _draining(tables: Tables, group: str) -> str:
    reason = tables.groups.why_closed(group)
    if reason is None:
        return ""
    num_left = tables.relocations.num_held_by(group) + sum(
        group in entry.placement.groups and not tables.relocations.has_left(entry.facts.name)
        for entry in tables.jobs.active()
    )
    told = f"draining, {counted(num_left, 'job')} left" if num_left else "drained"
    return f"{told} ({reason})" if reason else told


def _running(tables: Tables, entry: JobEntry) -> str:
    """Op of a job that holds a group; empty if none does."""
    for group in entry.placement.groups:
        holder = tables.arbiter.holder(group)
        if holder is not None and holder.function.job == entry.facts.name:
            return holder.function.op
    return ""


def _group_status(tables: Tables, name: str, row: GroupRow, moment: Moment) -> GroupStatus:
    holder = tables.arbiter.holder(name)
    function = holder.function if holder else None
    live = tables.ledger[function.id] if function and function.id in tables.ledger else None
    started_s = live.started_s if live else None
    snapshot = row.snapshot
    return GroupStatus(
        name=name,
        worker=row.worker,
        holder=function.job if function else "",
        function=function.op if function else "",
        held_for_s=0.0 if started_s is None else moment.epoch_s + moment.now_s - started_s,
        busy_s=row.busy_s,
        num_waiting=tables.arbiter.num_waiting(name),
        traffic=snapshot.traffic,
        host_used_bytes=snapshot.host_used_bytes,
        # Before its first lease a service has told nothing, but its worker has.
        host_budget_bytes=snapshot.host_budget_bytes or row.budget_bytes,
        resident=snapshot.resident,
        engine_pid=snapshot.engine_pid,
        num_engine_starts=snapshot.num_engine_starts,
        num_engine_restarts=snapshot.num_engine_restarts,
        store=snapshot.store,
        draining=_draining(tables, name),
    )
