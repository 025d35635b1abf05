"""Binds the pure parts on the scheduler: job table, arbiter, planner and execution log.

It takes what happened and answers what shall be done; Dask is the plugin's business. All
times it takes are seconds of the system clock; all times it gives out are seconds since
`epoch_s`.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import replace

from dataflow.calls import AttachOptions
from dataflow.phases import Phase
from plexrl.core.jobs import JobFacts, JobTable
from plexrl.core.placement import Placement, check_pins
from plexrl.core.relocations import RelocationTable
from plexrl.core.status import (
    ClusterStatus,
    JobState,
)
from plexrl.errors import JobError
from plexrl.planning.planner import GroupFacts, PlannedJob, Planner, Proposal
from plexrl.runtime.commits import CommitLog
from plexrl.runtime.groups import GroupTable
from plexrl.runtime.ledger import FunctionEntry, Ledger
from plexrl.runtime.messages import (
    CommittedModel,
    DriverEnded,
    DriverEvent,
    DriverStarted,
    DriverSteppedAside,
    DriverWaits,
    IterationCommitted,
    Trace,
)
from plexrl.runtime.snapshot import Moment, Tables, cluster_status
from plexrl.services.reports import LeaseEnded, LeaseStarted
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
    Yielded,
)
from solver.dispatch.instructions import Instruction
from solver.dispatch.yielding import rest_ticks
from solver.trace import IterationRecord, Outcome

GROUP_PATIENCE_S = 15.0
"""Seconds a job waits for its group to come back before it goes to another: a worker that was
killed is back in about three, and only on its own group are its newest versions in memory."""


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
        self.ledger = Ledger(epoch_s)
        self.groups = GroupTable()
        self.relocations = RelocationTable()
        self.tables = Tables(self.jobs, self.groups, self.ledger, self.arbiter, self.relocations)
        self._commits = CommitLog()
        self._instructions: list[Instruction] = []

    def take_instructions(self) -> tuple[Instruction, ...]:
        """What the arbiter answered since the last call."""
        taken = tuple(self._instructions)
        self._instructions.clear()
        return taken

    def group_up(self, group: GroupFacts, worker: str, budget_bytes: int, now_s: float) -> None:
        """A group's worker joined, with this much host memory for states."""
        self.groups.add(group.name, worker, budget_bytes)
        self.planner.group_added(group)
        self._tell(GroupAdded(group.name), now_s)

    def group_down(self, group: str, now_s: float) -> None:
        """A group's worker is gone."""
        self.groups.remove(group, now_s)
        unbound = self.ledger.lost(group, now_s)
        self.planner.group_lost(group)
        self._tell(GroupLost(group), now_s)
        for function_id in unbound:
            # Its job may sample elsewhere by now.
            self.withdrawn(function_id, now_s)
            self.ready(function_id, now_s)

    def drop_groups_of(self, function_id: str, workers: Container[str], now_s: float) -> None:
        """Note that groups of a function are gone whose worker is not among these."""
        for group in self.ledger.groups_of(function_id):
            row = self.groups.get(group)
            if row is not None and row.worker not in workers:
                self.group_down(group, now_s)

    def submit(self, facts: JobFacts, now_s: float) -> Placement:
        """Place a job that arrives; returns its groups.

        Raises
        ------
        JobError
            The name is taken, there is no group, none is large enough, or those it asks for are
            not there.
        """
        check_pins(facts.name, facts.pins, facts.models)
        if not self.groups.names():
            raise JobError(
                f"job {facts.name!r} has no group to run on: no worker announces a resource "
                "llm:<group>; start workers with one (plexrl.LocalCluster does)"
            )
        _require_room(facts, self.groups.largest_budget_bytes())
        planned = _planned(facts)
        self.jobs.add(facts, Placement(""), now_s - self.epoch_s)
        try:
            placement = self.planner.placement(planned)
        except BaseException:
            self.jobs.move(facts.name, JobState.FAILED, now_s - self.epoch_s, "not placed")
            raise
        self.jobs.set_placement(facts.name, placement)
        self.planner.job_arrived(planned)
        return placement

    def stranded(self, now_s: float) -> tuple[str, ...]:
        """Jobs one of whose groups has been gone too long, and that can leave it.

        A job that was told to run there waits on, and so does every job while there is no other
        group; not those that were asked to leave.
        """
        if not self.groups.is_any_gone():
            return ()
        gone = {
            entry.facts.name: {
                group
                for group in entry.placement.groups
                if self.groups.gone_for_s(group, now_s) > GROUP_PATIENCE_S
            }
            for entry in self.jobs.active()
            if not self.relocations.has_left(entry.facts.name)
        }
        has_others = bool(self.groups.names())
        return tuple(
            name
            for name, groups in gone.items()
            if groups
            and (
                name in self.relocations
                or (has_others and not groups & set(self.jobs[name].facts.pins.values()))
            )
        )

    def rest(self, job: str, now_s: float) -> None:
        """A job that is off its group stays so."""
        self.jobs.move(job, JobState.PAUSED, now_s - self.epoch_s)
        self._tell(JobLeft(job), now_s)

    def settle_down(self, job: str, target: str, now_s: float) -> Placement:
        """Place a job that is off its groups, at home on `target` or wherever there is room.

        Raises
        ------
        JobError
            There is no room.
        """
        entry = self.jobs[job]
        placement = self.planner.placement(_planned(entry.facts), target)
        self.jobs.set_placement(job, placement)
        if entry.state is JobState.PAUSED:
            self.jobs.move(job, JobState.STARTING, now_s - self.epoch_s)
        self.planner.ask(f"{job} goes on, on {placement}")
        return placement

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
            case DriverStarted(job=job, at_s=at_s, index=index, tokens=tokens, earlier=earlier):
                has_run = self.jobs[job].started_s is not None
                if self.jobs[job].state is JobState.STARTING:
                    self.jobs.move(job, JobState.RUNNING, at_s - self.epoch_s)
                self.jobs.set_waits_for(job, "")
                self._catch_up(event, has_run=has_run)
                self._commits.resume_at(job, tokens)
                self.jobs.resume_at(job, index)
                self.jobs.remember(job, [_since(self.epoch_s, record) for record in earlier])
            case IterationCommitted(record=record, tokens=tokens):
                job = record.job
                self.jobs.commit(_since(self.epoch_s, record))
                self._commits.confirm(job, record.iteration, tokens)
            case DriverWaits(job=job, reason=reason):
                self.jobs.set_waits_for(job, reason)
            case DriverEnded(job=job, at_s=at_s, error=error, why_early=why_early):
                self.jobs.set_why_early(job, why_early)
                self.end(job, JobState.FAILED if error else JobState.FINISHED, at_s, error)
            case DriverSteppedAside(job=job):
                self.jobs.set_driver(job, "")
        return job

    def _catch_up(self, event: DriverStarted, *, has_run: bool) -> None:
        """Note iterations that were committed while the driver that ran them died or left."""
        job, index, at_s = event.job, event.index, event.at_s - self.epoch_s
        found = list(self._commits.catch_up(job, self.jobs[job].num_committed, index))
        known = found[-1].iteration + 1 if found else self.jobs[job].num_committed
        if has_run and known == index - 1:
            # Of the newest one neither driver nor service could tell in time.
            last = event.earlier[-1] if event.earlier else None
            metrics = last.metrics if last is not None and last.iteration == index - 1 else ()
            found.append(IterationRecord(job, index - 1, at_s, at_s, metrics))
            self._commits.confirm(job, index - 1, event.tokens)
        for record in found:
            entry = self.jobs[job]
            before = entry.iterations.last
            started_s = entry.arrived_s if before is None else before.ended_s
            self.jobs.commit(replace(record, started_s=started_s))

    def models(self, job: str) -> Mapping[str, CommittedModel]:
        """Models of a job, as far as they are committed."""
        tokens = self._commits.tokens(job)
        return {
            name: CommittedModel(options, tokens.get(name))
            for name, options in self.jobs[job].facts.models.items()
        }

    def known(self, function_id: str, annotation: Mapping[str, object]) -> None:
        """A function entered the scheduler.

        Raises
        ------
        JobError
            Its job was never submitted here.
        """
        facts = self.jobs[str(annotation["job"])].facts
        hint = annotation.get("hint_s")
        self.ledger.know(
            FunctionEntry(
                id=function_id,
                job=facts.name,
                model=str(annotation["model"]),
                op=str(annotation["op"]),
                iteration=int(str(annotation["iteration"])),
                version=int(str(annotation["version"])),
                hint_s=hint if isinstance(hint, float) else None,
                # One that samples can stop in the middle and go on without losing what it has done.
                is_yieldable=Phase(str(annotation["function"])).is_sampling,
            )
        )

    def ready(self, function_id: str, now_s: float) -> None:
        """A function's inputs are there."""
        self.ledger.ready(function_id, now_s)
        entry = self.ledger[function_id]
        groups = self.groups_for(function_id)
        expected_s = self.planner.expected_s(entry.job, entry.op, entry.hint_s)
        expected = max(1, round(expected_s * TICKS_PER_S))
        served = round(entry.served_s * TICKS_PER_S)
        self._tell(
            Ready(
                FunctionRef(
                    id=function_id,
                    job=entry.job,
                    op=entry.op,
                    iteration=entry.iteration,
                    groups=groups,
                    duration_ticks=rest_ticks(expected, served) if served else expected,
                    is_yieldable=entry.is_yieldable,
                    served_ticks=served,
                    swap_ticks=round(self.planner.swap_s(entry.job, entry.op) * TICKS_PER_S),
                )
            ),
            now_s,
        )

    def groups_for(self, function_id: str) -> tuple[str, ...]:
        """Groups that a function needs now, the one it runs on first."""
        entry = self.ledger[function_id]
        if entry.served_on:
            # What it has drawn so far lies there, wherever its job has been placed since.
            return (entry.served_on,)
        job, is_setup = self.jobs[entry.job], entry.iteration < 0
        groups = job.placement.lease_groups(entry.op, is_setup=is_setup)
        if is_setup and not job.state.is_active and self.groups.get(groups[0]) is None:
            # A job that is off its groups, so that all it has is in the store.
            return (min(self.groups.names() or groups, key=self.arbiter.num_waiting),)
        return groups

    def report(self, report: LeaseStarted | LeaseEnded, now_s: float) -> None:
        """A service says that a lease began or ended."""
        # A group that is gone took its leases along; what it still had to say may come later.
        is_gone = self.groups.get(report.group) is None
        match report:
            case LeaseStarted(id=function_id, at_s=at_s):
                if function_id in self.ledger:
                    self.ledger.started(function_id, at_s)
                    if not is_gone:
                        self._tell(Started(function_id), now_s)
            case LeaseEnded():
                held = self.ledger[report.id].groups if report.id in self.ledger else ()
                self.groups.note(report, held)
                record = self.ledger.ended(report)
                if record is not None:
                    if report.trained is not None:
                        self._commits.note(record, report.trained)
                    if record.iteration >= 0:
                        self.planner.observe(record)
                    ended = Yielded if record.outcome is Outcome.YIELDED else Ended
                    self._tell((Withdrawn if is_gone else ended)(report.id), now_s)

    def withdrawn(self, function_id: str, now_s: float) -> None:
        """A function was cancelled, or failed before its lease began."""
        self.ledger.withdrawn(function_id)
        self._tell(Withdrawn(function_id), now_s)

    def adopt(self, proposal: Proposal, now_s: float) -> None:
        """Put a plan into force."""
        plan = self.planner.adopt(proposal, now_s - self.epoch_s)
        self._tell(PlanAdopted(plan), now_s)

    def wake(self, now_s: float) -> None:
        """A moment the arbiter asked for has come."""
        self._tell(Woke(), now_s)

    def trace(self) -> Trace:
        """The execution log so far."""
        entries = [self.jobs[name] for name in self.jobs.names()]
        iterations = tuple(record for entry in entries for record in entry.iterations)
        earlier = tuple(record for entry in entries for record in entry.earlier)
        return Trace(self.ledger.leases(), iterations, earlier)

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
        moment = Moment.at(now_s, self.epoch_s, cpu_phases, num_errors)
        return cluster_status(self.tables, self.planner.status(), moment)

    def _tell(self, event: Event, now_s: float) -> None:
        self._instructions.extend(self.arbiter.handle(event, self._ticks(now_s)))

    def _ticks(self, now_s: float) -> int:
        return max(0, round((now_s - self.epoch_s) * TICKS_PER_S))


def _require_room(facts: JobFacts, largest_bytes: int) -> None:
    """Raise unless a group's host memory can hold one version and the next beside it."""
    if facts.memory_bytes > largest_bytes:
        raise JobError(
            f"job {facts.name!r} needs {facts.memory_bytes} bytes of host memory on one group "
            "(each model, and beside each trainable one the version being committed); the "
            f"largest group has {largest_bytes}: raise host_budget_bytes "
            "(plexrl.state.host_budget_bytes) or use a smaller model"
        )


def _since(epoch_s: float, record: IterationRecord) -> IterationRecord:
    """A record with times of the cluster's clock instead of the system's."""
    return replace(record, started_s=record.started_s - epoch_s, ended_s=record.ended_s - epoch_s)


def _planned(facts: JobFacts) -> PlannedJob:
    return PlannedJob(
        name=facts.name,
        ops=tuple((op.op, op.hint_s, op.wait_hint_s) for op in facts.ops),
        memory_bytes=facts.memory_bytes,
        slowdown_limit=facts.slowdown_limit,
        weight=facts.weight,
        arrangement=facts.arrangement,
        pins=facts.pins,
        copy_bytes=facts.copy_bytes,
        staleness=facts.staleness,
        iterations=facts.iterations,
        engines=frozenset(map(_engine_of, facts.models.values())),
    )


def _engine_of(options: AttachOptions) -> str:
    """What tells engines apart: a model's folder stands for its architecture."""
    parts = (options.folder, options.head, options.lora, options.rollout_engine)
    return " ".join(map(str, parts))
