"""Binds the pure parts on the scheduler: job table, arbiter, planner and execution log.

It takes what happened and answers what shall be done; Dask is the plugin's business. All
times it takes are seconds of the system clock; all times it gives out are seconds since
`epoch_s`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from dataflow.calls import Trained, VersionToken
from plexrl.core.jobs import JobEntry, JobFacts, JobTable
from plexrl.core.status import (
    ClusterStatus,
    GroupStatus,
    JobState,
    JobStatus,
)
from plexrl.errors import JobError
from plexrl.planning.planner import GroupFacts, PlannedJob, Planner, Proposal
from plexrl.runtime.ledger import FunctionEntry, Ledger
from plexrl.runtime.messages import (
    CommittedModel,
    DriverEnded,
    DriverEvent,
    DriverStarted,
    IterationCommitted,
    Trace,
)
from plexrl.services.reports import LeaseEnded, LeaseStarted, Report, ServiceSnapshot
from solver.dispatch.arbiter import Arbiter
from solver.dispatch.events import (
    TICKS_PER_S,
    Ended,
    Event,
    FunctionRef,
    GroupAdded,
    GroupLost,
    JobLeft,
    PlanAdopted,
    Ready,
    Started,
    Withdrawn,
    Woke,
)
from solver.dispatch.instructions import Instruction
from solver.trace import IterationRecord, LeaseRecord


class Coordinator:
    """State of a cluster's scheduler side, without the scheduler.

    Parameters
    ----------
    planner
        Knows the profiles and plans.
    arbiter
        Grants leases.
    epoch_s
        Start of the cluster's clock, in seconds of the system clock.
    """

    def __init__(self, planner: Planner, arbiter: Arbiter, epoch_s: float) -> None:
        self.planner = planner
        self.arbiter = arbiter
        self.epoch_s = epoch_s
        self.jobs = JobTable()
        self._ledger = Ledger(epoch_s)
        self._workers: dict[str, str] = {}
        self._budgets: dict[str, int] = {}
        self._snapshots: dict[str, ServiceSnapshot] = {}
        self._busy_s: dict[str, float] = {}
        self._tokens: dict[str, dict[str, VersionToken]] = {}
        self._commits: dict[tuple[str, int], tuple[IterationRecord, VersionToken]] = {}
        """Committed by a service, not yet confirmed by a driver."""
        self._instructions: list[Instruction] = []

    def take_instructions(self) -> tuple[Instruction, ...]:
        """What the arbiter answered since the last call."""
        taken = tuple(self._instructions)
        self._instructions.clear()
        return taken

    def group_up(self, group: GroupFacts, worker: str, budget_bytes: int, now_s: float) -> None:
        """A group's worker joined, with this much host memory for states."""
        self._workers[group.name] = worker
        self._budgets[group.name] = budget_bytes
        self.planner.group_added(group)
        self._tell(GroupAdded(group.name), now_s)

    def group_down(self, group: str, now_s: float) -> None:
        """A group's worker is gone."""
        self._workers.pop(group, None)
        self._ledger.lost(group, now_s)
        self.planner.group_lost(group)
        self._tell(GroupLost(group), now_s)

    def worker_of(self, group: str) -> str | None:
        """Address of a group's worker; None while there is none."""
        return self._workers.get(group)

    def groups(self) -> tuple[str, ...]:
        """Groups that have a worker."""
        return tuple(self._workers)

    def submit(self, facts: JobFacts, now_s: float) -> str:
        """Place a job that arrives; returns its group.

        Raises
        ------
        JobError
            The name is taken, there is no group, or none is large enough.
        """
        if not self._workers:
            raise JobError(
                f"job {facts.name!r} has no group to run on: no worker announces a resource "
                "llm:<group>; start workers with one (plexrl.LocalCluster does)"
            )
        self._require_room(facts)
        planned = PlannedJob(
            name=facts.name,
            ops=tuple((op.op, op.hint_s, op.wait_hint_s) for op in facts.ops),
            memory_bytes=facts.memory_bytes,
            slowdown_limit=facts.slowdown_limit,
            weight=facts.weight,
        )
        self.jobs.add(facts, "", now_s - self.epoch_s)
        try:
            group = self.planner.placement(planned)
        except BaseException:
            self.jobs.move(facts.name, JobState.FAILED, now_s - self.epoch_s, "not placed")
            raise
        self.jobs.set_group(facts.name, group)
        self.planner.job_arrived(planned)
        return group

    def _require_room(self, facts: JobFacts) -> None:
        """Raise unless a group's host memory can hold one version and the next beside it."""
        largest = max(self._budgets.values())
        if facts.memory_bytes > largest:
            raise JobError(
                f"job {facts.name!r} needs {facts.memory_bytes} bytes of host memory on one group "
                "(each model, and beside each trainable one the version being committed); the "
                f"largest group has {largest}: raise host_budget_bytes "
                "(plexrl.state.host_budget_bytes) or use a smaller model"
            )

    def end(self, job: str, state: JobState, now_s: float, error: str = "") -> None:
        """Note that a job ended; a second end changes nothing."""
        if self.jobs[job].state.is_terminal:
            return
        self.jobs.move(job, state, now_s - self.epoch_s, error)
        self.planner.job_left(job)
        self._tell(JobLeft(job), now_s)

    def driver_event(self, event: DriverEvent) -> str:
        """Take what a driver says; returns the job it is about."""
        match event:
            case DriverStarted(job=job, at_s=at_s, index=index):
                if self.jobs[job].state is JobState.STARTING:
                    self.jobs.move(job, JobState.RUNNING, at_s - self.epoch_s)
                self._catch_up(job, index)
                self.jobs.resume_at(job, index)
            case IterationCommitted(record=record, tokens=tokens):
                job = record.job
                self.jobs.commit(
                    replace(
                        record,
                        started_s=record.started_s - self.epoch_s,
                        ended_s=record.ended_s - self.epoch_s,
                    )
                )
                self._tokens.setdefault(job, {}).update({t.model: t for t in tokens})
                self._commits.pop((job, record.iteration), None)
            case DriverEnded(job=job, at_s=at_s, error=error):
                self.end(job, JobState.FAILED if error else JobState.FINISHED, at_s, error)
        return job

    def _catch_up(self, job: str, index: int) -> None:
        """Note iterations that were committed while the driver that ran them died."""
        entry = self.jobs[job]
        for iteration in range(entry.num_committed, index):
            record, token = self._commits.pop((job, iteration), (None, None))
            if record is None or token is None:
                return
            before = entry.iterations[-1].ended_s if entry.iterations else entry.arrived_s
            self.jobs.commit(replace(record, started_s=before))
            self._tokens.setdefault(job, {})[token.model] = token
            entry = self.jobs[job]

    def models(self, job: str) -> Mapping[str, CommittedModel]:
        """Models of a job, as far as they are committed."""
        tokens = self._tokens.get(job, {})
        return {
            name: CommittedModel(options, tokens.get(name))
            for name, options in self.jobs[job].facts.models.items()
        }

    def known(self, function_id: str, annotation: Mapping[str, object]) -> str:
        """A function entered the scheduler; returns the group it will run on.

        Raises
        ------
        JobError
            Its job was never submitted here.
        """
        job = str(annotation["job"])
        entry = self.jobs[job]
        hint = annotation.get("hint_s")
        self._ledger.know(
            FunctionEntry(
                id=function_id,
                job=job,
                model=str(annotation["model"]),
                op=str(annotation["op"]),
                iteration=int(str(annotation["iteration"])),
                version=int(str(annotation["version"])),
                hint_s=hint if isinstance(hint, float) else None,
            )
        )
        return entry.group

    def ready(self, function_id: str, now_s: float) -> None:
        """A function's inputs are there."""
        self._ledger.ready(function_id, now_s)
        entry = self._ledger[function_id]
        group = self.jobs[entry.job].group
        expected_s = self.planner.expected_s(entry.job, entry.op, entry.hint_s)
        self._tell(
            Ready(
                FunctionRef(
                    id=function_id,
                    job=entry.job,
                    op=entry.op,
                    iteration=entry.iteration,
                    groups=(group,),
                    duration_ticks=max(1, round(expected_s * TICKS_PER_S)),
                )
            ),
            now_s,
        )

    def admitted(self, function_id: str, group: str) -> None:
        """A function was sent to its group's worker."""
        self._ledger.admitted(function_id, group)

    def report(self, report: Report, now_s: float) -> None:
        """A service says that a lease began or ended."""
        match report:
            case LeaseStarted(id=function_id, at_s=at_s):
                if function_id in self._ledger:
                    self._ledger.started(function_id, at_s)
                    self._tell(Started(function_id), now_s)
            case LeaseEnded():
                self._snapshots[report.group] = report.snapshot
                held_s = report.ended_s - report.started_s
                self._busy_s[report.group] = self._busy_s.get(report.group, 0.0) + held_s
                record = self._ledger.ended(report)
                if record is not None:
                    if report.trained is not None:
                        self._note_commit(record, report.trained)
                    if record.iteration >= 0:
                        self.planner.observe(record)
                    self._tell(Ended(report.id), now_s)

    def _note_commit(self, lease: LeaseRecord, trained: Trained) -> None:
        record = IterationRecord(
            lease.job, lease.iteration, lease.ready_s, lease.ended_s, trained.metrics
        )
        self._commits[lease.job, lease.iteration] = (record, trained.token)

    def withdrawn(self, function_id: str, now_s: float) -> None:
        """A function was cancelled, or failed before its lease began."""
        self._tell(Withdrawn(function_id), now_s)

    def has_started(self, function_id: str) -> bool:
        """Whether a function holds its lease right now."""
        return function_id in self._ledger and self._ledger[function_id].started_s is not None

    def forget(self, function_id: str) -> None:
        """A function left the scheduler."""
        self._ledger.forget(function_id)

    def adopt(self, proposal: Proposal, now_s: float) -> None:
        """Put a plan into force."""
        plan = self.planner.adopt(proposal, now_s - self.epoch_s)
        self._tell(PlanAdopted(plan), now_s)

    def wake(self, now_s: float) -> None:
        """A moment the arbiter asked for has come."""
        self._tell(Woke(), now_s)

    def trace(self) -> Trace:
        """The execution log so far."""
        iterations: list[IterationRecord] = []
        for name in self.jobs.names():
            iterations.extend(self.jobs[name].iterations)
        return Trace(self._ledger.leases(), tuple(iterations))

    def status(self, now_s: float, cpu_phases: Mapping[str, str], num_errors: int) -> ClusterStatus:
        """The cluster as people shall see it.

        Parameters
        ----------
        now_s
            Now, in seconds of the system clock.
        cpu_phases
            Job → phase of its ordinary task that runs right now.
        num_errors
            Errors inside the plugin so far.
        """
        reasons = {w.job: (w.op, w.reason) for w in self.arbiter.waiting(self._ticks(now_s))}
        return ClusterStatus(
            now_s=now_s - self.epoch_s,
            jobs=tuple(
                self._job_status(self.jobs[name], reasons, cpu_phases) for name in self.jobs.names()
            ),
            groups=tuple(self._group_status(group, now_s) for group in self._workers),
            plan=self.planner.status(),
            num_errors=num_errors,
        )

    def _job_status(
        self,
        entry: JobEntry,
        reasons: Mapping[str, tuple[str, str]],
        cpu_phases: Mapping[str, str],
    ) -> JobStatus:
        name = entry.facts.name
        phase, waits_for = self._phase(entry, reasons, cpu_phases)
        rewards = [
            value
            for record in entry.iterations
            for key, value in record.metrics
            if key == "reward_mean"
        ]
        spans = [record.ended_s - record.started_s for record in entry.iterations]
        return JobStatus(
            name=name,
            state=entry.state,
            group=entry.group,
            iteration=entry.num_committed,
            iterations=entry.facts.iterations,
            phase=phase,
            waits_for=waits_for,
            reward_first=rewards[0] if rewards else None,
            reward_last=rewards[-1] if rewards else None,
            metrics=dict(entry.iterations[-1].metrics) if entry.iterations else {},
            iteration_s=sum(spans) / len(spans) if spans else None,
            slowdown_limit=entry.facts.slowdown_limit,
            started_s=entry.arrived_s if entry.started_s is None else entry.started_s,
            ended_s=entry.ended_s,
            error=entry.error,
        )

    def _phase(
        self,
        entry: JobEntry,
        reasons: Mapping[str, tuple[str, str]],
        cpu_phases: Mapping[str, str],
    ) -> tuple[str, str]:
        name = entry.facts.name
        if entry.state.is_terminal:
            return "", ""
        holder = self.arbiter.holder(entry.group)
        if holder is not None and holder.function.job == name:
            return holder.function.op, ""
        if name in reasons:
            return reasons[name]
        if name in cpu_phases:
            return cpu_phases[name], f"{cpu_phases[name]} on a CPU worker"
        if not entry.driver:
            return "", "a worker without a group, for its driver"
        return "", "its driver"

    def _group_status(self, group: str, now_s: float) -> GroupStatus:
        holder = self.arbiter.holder(group)
        function = holder.function if holder else None
        entry = self._ledger[function.id] if function and function.id in self._ledger else None
        held_for_s = now_s - entry.started_s if entry and entry.started_s is not None else 0.0
        snapshot = self._snapshots.get(group, ServiceSnapshot())
        return GroupStatus(
            name=group,
            worker=self._workers.get(group, ""),
            holder=function.job if function else "",
            function=function.op if function else "",
            held_for_s=held_for_s,
            busy_s=self._busy_s.get(group, 0.0),
            num_waiting=self.arbiter.num_waiting(group),
            traffic=snapshot.traffic,
            host_used_bytes=snapshot.host_used_bytes,
            host_budget_bytes=snapshot.host_budget_bytes,
            resident=snapshot.resident,
            engine_pid=snapshot.engine_pid,
            num_engine_starts=snapshot.num_engine_starts,
        )

    def _tell(self, event: Event, now_s: float) -> None:
        self._instructions.extend(self.arbiter.handle(event, self._ticks(now_s)))

    def _ticks(self, now_s: float) -> int:
        return max(0, round((now_s - self.epoch_s) * TICKS_PER_S))
