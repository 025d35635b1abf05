"""The scheduler plugin: Dask's events to the coordinator, its instructions back to Dask.

Dask swallows exceptions of plugins, so every hook is wrapped: an error is logged and counted
(`plexrl.core.status.ClusterStatus.num_errors`), and a periodic pass picks up what was missed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from distributed import Scheduler
from distributed.diagnostics.plugin import SchedulerPlugin

from dataflow.annotations import ANNOTATION, read_annotation
from dataflow.errors import DataflowError
from plexrl.clock import Clock, system_clock
from plexrl.core.jobs import JobEntry
from plexrl.core.status import JobState
from plexrl.errors import JobError
from plexrl.planning.config import PlanningConfig
from plexrl.planning.planner import GroupFacts, Planner, PlanRequest, Proposal
from plexrl.planning.process import PlannerProcess
from plexrl.runtime import messages
from plexrl.runtime.coordinator import Coordinator
from plexrl.runtime.desk import Desk
from plexrl.runtime.drivers import DriverPlacement
from plexrl.runtime.foretelling import Foretelling
from plexrl.runtime.gangs import is_granted, must_wait
from plexrl.runtime.gate import Gate, group_of
from plexrl.runtime.hosting import Hosting
from plexrl.runtime.logs import log_driver
from plexrl.runtime.messages import unpack
from plexrl.runtime.ordinary import OrdinaryTasks
from plexrl.runtime.outbox import Outbox
from plexrl.runtime.overdue import Overdue
from plexrl.runtime.replanning import replan_for_ever
from plexrl.runtime.steering import Steering
from plexrl.runtime.streams import send_at_once
from plexrl.runtime.view import ClusterView, show
from plexrl.services.reports import JobLetGo
from solver.dispatch.arbiter import Arbiter
from solver.dispatch.events import TICKS_PER_S
from solver.dispatch.instructions import Admit, Instruction, Prefetch, WakeAt, Yield
from solver.dispatch.rules import PlanOrderWithBackfill
from solver.dispatch.yielding import YieldRule

logger = logging.getLogger("plexrl.scheduler")

PLUGIN_NAME = "plexrl"

RECONCILE_S = 1.0
"""Seconds between passes that pick up admitted tasks a worker could not take and drivers
without a worker; both are rare and neither is urgent."""


class PlexRLScheduler(SchedulerPlugin):
    """Holds LLM functions back, grants their leases, places jobs and keeps their drivers alive.

    Parameters
    ----------
    planning
        Settings of the planning loop.
    host_budget_bytes
        Host memory a group has for states.
    run
        Id of this life of the cluster.
    task_timeout_s
        Seconds an ordinary task of a job may run.
    faces
        Module that adds pages to the scheduler's dashboard; empty adds none.
    solve
        Answers requests for plans, blocking; None: a process of its own does.

    Attributes
    ----------
    view : ClusterView
        The tables of the scheduler side, once the plugin has started.
    """

    name = PLUGIN_NAME
    idempotent = True

    def __init__(
        self,
        planning: PlanningConfig,
        host_budget_bytes: int,
        run: str,
        clock: Clock = system_clock,
        task_timeout_s: float = 3600.0,
        faces: str = "",
        solve: Callable[[PlanRequest], Proposal] | None = None,
    ) -> None:
        self._planning = planning
        self._host_budget_bytes = host_budget_bytes
        self._run = run
        self._clock = clock
        self._task_timeout_s = task_timeout_s
        self._faces = faces
        self._solve = solve
        self._num_errors = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._llm_keys: set[Any] = set()
        self._denied: dict[Any, Exception] = {}
        self._unserved: dict[Any, tuple[str, ...]] = {}
        self._behind_gangs: dict[Any, tuple[str, ...]] = {}
        """Admitted functions that may not be sent yet (`plexrl.runtime.gangs`)."""
        self._is_draining = False

    async def start(self, scheduler: Scheduler) -> None:
        """Take over: handlers, groups that are already there, the periodic passes."""
        self._scheduler = scheduler
        self._gate = Gate(scheduler)
        self._outbox = Outbox(scheduler)
        self._coordinator = Coordinator(
            Planner(self._planning), _arbiter(self._planning), self._clock()
        )
        ordinary = OrdinaryTasks(self._gate, self._coordinator.jobs, self._coordinator.ledger)
        self._open_desks(ordinary)
        scheduler.handlers |= {**self._desk.handlers(), **self._steering.handlers()}
        scheduler.stream_handlers |= {
            messages.REPORT: self.handle_report,
            messages.DRIVER: self.handle_driver,
        }
        self.view = ClusterView(
            self._coordinator, ordinary.phases, lambda: self._num_errors, self._clock
        )
        with self._guarded("faces"):
            show(self._faces, scheduler, self.view)
        for address in scheduler.workers:
            self.add_worker(scheduler, address)
        self._planner_process = PlannerProcess()
        planning = replan_for_ever(
            self._coordinator,
            self._solve or self._planner_process.solve,
            self._clock,
            self._guarded,
            self._steering.adopted,
        )
        for loop in (self._reconcile(), planning):
            self._tasks.add(asyncio.create_task(loop))

    def _open_desks(self, ordinary: OrdinaryTasks) -> None:
        """Make what answers clients and operators."""
        self._overdue = Overdue(self._gate, self._task_timeout_s, ordinary.jobs, self._clock)
        self._drivers = DriverPlacement(self._run)
        self._hosting = Hosting(self._coordinator, self._outbox)
        self._foretelling = Foretelling(self._gate, self._coordinator, self._outbox)
        self._desk = Desk(
            self._coordinator,
            self._drivers,
            stop_driver=partial(_stop_driver, self._gate, self._outbox),
            placed=self._hosting.tell,
            let_go=self._let_go,
            settle=self._settle,
            cpu_phases=ordinary.phases,
            num_errors=lambda: self._num_errors,
            clock=self._clock,
        )
        self._steering = Steering(
            self._coordinator,
            self._drivers,
            self._outbox,
            placed=self._hosting.tell,
            settle=self._settle,
            clock=self._clock,
        )

    async def before_close(self) -> None:
        """Stop the periodic passes, and the planner's process."""
        for task in self._tasks:
            task.cancel()
        self._planner_process.close()

    def add_worker(self, scheduler: Scheduler, worker: str) -> None:
        """Note a worker: the one of a group, or an ordinary one."""
        with self._guarded("add_worker"):
            send_at_once(scheduler.stream_comms[worker])
            resources = scheduler.workers[worker].resources
            group = group_of(resources)
            if group is None:
                self._gate.add_ordinary_worker(worker)
                self._settle()
                return
            # Host memory bounds what is resident at once, not who may share the group: states
            # beyond the budget wait in the store.
            max_jobs = self._planning.max_jobs
            facts = GroupFacts(group, self._host_budget_bytes * max_jobs, max_jobs)
            self._coordinator.group_up(facts, worker, self._host_budget_bytes, self._clock())
            self._hosting.group_up(group)
            self._drain_soon()

    def remove_worker(
        self, scheduler: Scheduler, worker: str, *, stimulus_id: str, **kwargs: Any
    ) -> None:
        """Note that a worker is gone: its leases end, its drivers start elsewhere."""
        del scheduler, stimulus_id, kwargs
        with self._guarded("remove_worker"):
            self._gate.remove_worker(worker)
            for group in self._coordinator.groups.of_worker(worker):
                self._coordinator.group_down(group, self._clock())
            self._steering.worker_lost(worker)
            for name in self._coordinator.jobs.driven_by(worker):
                self._on_driver_lost(self._coordinator.jobs[name])
            self._settle()

    def _on_driver_lost(self, entry: JobEntry) -> None:
        name = entry.facts.name
        self._coordinator.jobs.set_driver(name, "")
        if self._steering.stepped_aside(name):
            return
        if not self._drivers.note_death(name, entry.num_committed):
            error = (
                "its driver died again and again without a committed iteration; look for what "
                "ends the worker it runs in (a reward, a tool or the pipeline), then resume"
            )
            self._coordinator.end(name, JobState.FAILED, self._clock(), error)
            self._let_go(name)

    def update_graph(
        self,
        scheduler: Scheduler,
        *,
        tasks: list[Any],
        annotations: dict[str, dict[Any, Any]],
        **kwargs: Any,
    ) -> None:
        """Hold LLM tasks of a new graph, and keep ordinary ones off the groups."""
        del scheduler, kwargs
        with self._guarded("update_graph"):
            ours = annotations.get(ANNOTATION, {})
            for key, value in ours.items():
                if key not in self._llm_keys:
                    self._hold(key, value)
            self._gate.keep_off_groups(key for key in tasks if key not in ours)

    def transition(
        self, key: Any, start: str, finish: str, *args: Any, stimulus_id: str, **kwargs: Any
    ) -> None:
        """Follow LLM tasks; everything else costs one look-up."""
        del args, kwargs, stimulus_id
        if key not in self._llm_keys or start == finish:
            return
        with self._guarded("transition"):
            now_s = self._clock()
            if finish == "no-worker":
                if key in self._denied:
                    error = self._denied[key]
                    asyncio.get_running_loop().call_soon(self._gate.fail, key, error)
                else:
                    self._coordinator.ready(key, now_s)
            elif start == "no-worker" and finish != "processing":
                if key not in self._denied:
                    self._coordinator.withdrawn(key, now_s)
            elif start == "processing":
                self._on_left_worker(key, now_s)
                if not self._gate.is_wanted(key):
                    _stop(self._coordinator, self._outbox, key)
            if finish == "forgotten":
                self._llm_keys.discard(key)
                self._denied.pop(key, None)
                self._coordinator.ledger.forget(key)
            self._drain_soon()

    def valid_workers_downscaling(self, scheduler: Scheduler, workers: list[Any]) -> list[Any]:
        """Keep workers of groups and of drivers when a cluster scales down: the oven stays."""
        del scheduler
        num_driven = self._coordinator.jobs.num_driven_by
        ordinary = [worker for worker in workers if group_of(worker.resources) is None]
        return [worker for worker in ordinary if not num_driven(worker.address)]

    async def handle_report(self, worker: str, payload: bytes) -> None:
        """Take a service's report."""
        del worker
        with self._guarded("report"):
            report = unpack(payload)
            if isinstance(report, JobLetGo):
                self._steering.let_go(report)
            else:
                self._coordinator.report(report, self._clock())
                self._hosting.note(report)
            self._drain_soon()

    async def handle_driver(self, worker: str, payload: bytes) -> None:
        """Take what a driver says; of one that died, whoever takes its place knows better."""
        with self._guarded("driver"):
            if worker not in self._scheduler.workers:
                return
            event = unpack(payload)
            if isinstance(event, messages.DriversHere):
                here = self._coordinator.jobs.driven_by(worker)
                for job in self._drivers.missed(worker, set(here) - set(event.jobs)):
                    logger.warning("the driver of job %s is gone without a word", job)
                    self._on_driver_lost(self._coordinator.jobs[job])
                self._settle()
                return
            job = self._coordinator.driver_event(event)
            log_driver(event)
            if self._coordinator.jobs[job].state.is_terminal:
                self._let_go(job)
            elif isinstance(event, messages.DriverSteppedAside):
                self._steering.stepped_aside(job)
                self._settle()
            else:
                self._coordinator.jobs.set_driver(job, worker)
            if isinstance(event, messages.IterationCommitted):
                self._steering.iteration_ended(job)
            self._drain_soon()

    def _hold(self, key: Any, annotation: object) -> None:
        self._llm_keys.add(key)
        try:
            read = read_annotation({ANNOTATION: annotation})
            assert read is not None
            self._coordinator.known(key, read)
        except (DataflowError, JobError) as error:
            # It cannot fail before it is ready; until then it must not run either.
            self._denied[key] = error
        self._gate.hold(key)

    def _on_left_worker(self, key: Any, now_s: float) -> None:
        """A task left its worker: done, failed, cancelled, or lost with the worker."""
        self._gate.hold_again(key)
        if key in self._denied:
            return
        # Dask moves the tasks of a worker that is gone before it tells plugins of it.
        self._coordinator.drop_groups_of(key, self._scheduler.workers, now_s)
        if self._coordinator.ledger.may_withdraw(key):
            self._coordinator.withdrawn(key, now_s)

    def _drain_soon(self) -> None:
        """Carry out instructions once the current round of transitions is over."""
        if not self._is_draining:
            self._is_draining = True
            asyncio.get_running_loop().call_soon(self._drain)

    def _drain(self) -> None:
        self._is_draining = False
        with self._guarded("drain"):
            while instructions := self._coordinator.take_instructions():
                for instruction in instructions:
                    self._carry_out(instruction)
            for key, groups in list(self._behind_gangs.items()):
                del self._behind_gangs[key]
                if is_granted(self._coordinator.arbiter, key, groups):
                    self._admit(key, groups)

    def _carry_out(self, instruction: Instruction) -> None:
        match instruction:
            case Admit(id=key, groups=groups):
                self._admit(key, groups)
            case Prefetch(group=group, job=job, op=op):
                row = self._coordinator.groups.get(group)
                if row is not None:
                    order = self._coordinator.planner.upcoming(group, job, op)
                    self._outbox.upcoming(row.worker, order)
            case Yield(id=key, groups=groups):
                row = self._coordinator.groups.get(groups[0])
                if row is not None:
                    self._outbox.yield_lease(row.worker, key)
            case WakeAt(tick=tick):
                delay_s = tick / TICKS_PER_S - (self._clock() - self._coordinator.epoch_s)
                asyncio.get_running_loop().call_later(max(0.0, delay_s), self._wake)

    def _admit(self, key: Any, groups: tuple[str, ...]) -> None:
        row = self._coordinator.groups.get(groups[0])
        if must_wait(self._coordinator.arbiter, key, groups):
            self._behind_gangs[key] = groups
        elif row is not None and self._gate.admit(key, groups[0], row.worker):
            self._coordinator.ledger.admitted(key, groups)
            self._unserved.pop(key, None)
            self._foretelling.admitted(key, groups[0], row.worker)
        else:
            self._unserved[key] = groups

    def _serve_late(self) -> None:
        """Send what was admitted when its worker could not take it."""
        for key, groups in list(self._unserved.items()):
            if self._gate.state(key) != "no-worker":
                del self._unserved[key]
            elif is_granted(self._coordinator.arbiter, key, groups):
                self._admit(key, groups)
            else:
                # A group of it was lost, and its lease with it.
                del self._unserved[key]
                self._coordinator.withdrawn(key, self._clock())
                self._coordinator.ready(key, self._clock())
        self._drain_soon()

    def _wake(self) -> None:
        with self._guarded("wake"):
            self._coordinator.wake(self._clock())
            self._drain_soon()

    def _settle(self) -> None:
        """Place drivers that have no worker, and carry out what the arbiter answered."""
        self._drivers.place(
            self._coordinator.jobs, self._gate.ordinary_workers(), self._outbox.drive
        )
        self._drain_soon()

    def _let_go(self, job: str) -> None:
        """A job ended: its groups may forget it once it is durable."""
        self._drivers.remove(job)
        self._desk.note_end(job)
        self._steering.job_ended(job)
        self._hosting.let_go(job)

    async def _reconcile(self) -> None:
        while True:
            await asyncio.sleep(RECONCILE_S)
            with self._guarded("reconcile"):
                self._serve_late()
                self._gate.keep_waiting(self._llm_keys)
                self._overdue.look()
                self._steering.rescue()
                self._steering.proceed()

    @contextmanager
    def _guarded(self, hook: str) -> Iterator[None]:
        try:
            yield
        except Exception:
            # Whatever it is, one hook that fails must not take the scheduler along.
            self._num_errors += 1
            logger.exception("error in %s of the PlexRL plugin", hook)


def _stop(coordinator: Coordinator, outbox: Outbox, key: Any) -> None:
    """End a rollout that nobody wants any more; of one that ended, its service hears too late.

    Dask takes a running task for gone, and its group would be busy with it to the end.
    """
    for group in coordinator.ledger.groups_of(key)[:1]:
        row = coordinator.groups.get(group)
        if row is not None:
            outbox.yield_lease(row.worker, key)


def _stop_driver(gate: Gate, outbox: Outbox, worker: str, job: str) -> None:
    """Have the end of a job noted where its driver is, or anywhere if it has none."""
    outbox.stop(worker or next(iter(gate.ordinary_workers()), ""), job)


def _arbiter(planning: PlanningConfig) -> Arbiter:
    """The arbiter as it is configured."""
    return Arbiter(
        PlanOrderWithBackfill(slack=planning.slack, overdue=planning.overdue),
        yielding=YieldRule(
            gain=planning.yield_gain,
            quantum_ticks=round(planning.yield_quantum_s * TICKS_PER_S),
            max_yields=planning.max_yields,
        ),
    )
