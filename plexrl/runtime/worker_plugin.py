"""What PlexRL puts into Dask workers: the service of a group, or a host for drivers.

One plugin for all workers; a worker's resources say which of the two it becomes.
"""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import Iterable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

from distributed import Client, Reschedule, Worker, get_worker
from distributed.diagnostics.plugin import WorkerPlugin

from dataflow import calls
from dataflow.starts import StartVersion
from plexrl.clock import Clock, system_clock
from plexrl.config import EngineConfig, StateConfig
from plexrl.engines.protocol import EngineKind, ModelSource, Unfinished
from plexrl.engines.remote import EngineProcess
from plexrl.errors import PlexRLError, ServiceError, StoreAwayError, StoreError
from plexrl.runtime import messages
from plexrl.runtime.driver import JobDriver
from plexrl.runtime.gate import group_of
from plexrl.runtime.messages import DriverEvent, pack, unpack
from plexrl.runtime.metrics_log import MetricsLog
from plexrl.runtime.peers import PeerDesk, WorkerPeers
from plexrl.runtime.registry import CANCELLED, JobRegistry, check_there, states_of
from plexrl.runtime.reporting import Reporter
from plexrl.runtime.sample_log import SampleLog
from plexrl.runtime.scratch import keep_scratch
from plexrl.runtime.starts import Stored, stored_versions
from plexrl.runtime.streams import send_at_once
from plexrl.services.reports import JobLetGo
from plexrl.services.rollouts import Stopped
from plexrl.services.service import GroupService
from plexrl.state.manager import StateManager
from plexrl.state.opening import open_store
from plexrl.state.store import Store

logger = logging.getLogger("plexrl.worker")

HOLD_TIMEOUT_S = 60.0
"""Seconds a gang waits for what still runs on a group it needs: a function that was cancelled."""

STORE_PAUSE_S = 2.0
"""Seconds before a driver that starts again looks anew for a store that is away."""

TELL_S = 15.0
"""Seconds between the messages that say which drivers live here: one that is gone without a word
is missed within two of them."""

CONNECT_ATTEMPTS = 3
"""Times a driver tries to connect: a scheduler that is flooded answers later."""

STOP_TIMEOUT_S = 5.0
"""Seconds a driver may take to end when it is told to."""


class PlexRLWorker(WorkerPlugin):
    """Turns a worker into what its resources say.

    Parameters
    ----------
    state
        Where states are kept.
    engines
        Limits of engine processes.
    holder
        Name of this run of the cluster, under which it claims jobs in a store at a URL.

    Attributes
    ----------
    samples : SampleLog
        Samples that iterations kept.
    """

    name = "plexrl"
    # Set up again, it would end the services that run.
    idempotent = True

    def __init__(self, state: StateConfig, engines: EngineConfig, holder: str) -> None:
        self._state = state
        self._engines = engines
        self._holder = holder
        self.samples = SampleLog(state.store)
        self._role: _ServiceHost | DriverHost | None = None

    @property
    def store(self) -> str:
        """Folder or URL of the store."""
        return self._state.store

    async def setup(self, worker: Worker) -> None:
        """Start the service or the driver host."""
        send_at_once(worker.batched_stream)
        if worker.nanny is not None:
            # Without one the process may not be the worker's alone.
            keep_scratch(worker.local_directory)
        group = group_of(worker.state.total_resources)
        if group is None:
            self._role = DriverHost(worker, self._state)
        else:
            self._role = _ServiceHost(worker, group, self._state, self._engines, self._holder)
        # The many small values of a large batch set off collections, which would walk through all
        # that was imported.
        gc.freeze()

    def transition(self, key: Any, start: str, finish: str, **kwargs: Any) -> None:
        """Let the end of a lease go with what Dask tells of its task next."""
        del key, start, finish, kwargs
        if isinstance(self._role, _ServiceHost):
            self._role.reporter.tell()

    def stored(self, start: StartVersion, models: Iterable[str]) -> Stored:
        """Versions of these models of the job that a job shall start from."""
        if not isinstance(self._role, _ServiceHost):
            raise ServiceError(f"this worker serves no group; nothing here knows {start}")
        return self._role.stored(start, models)

    def unfinished(self, job: str) -> tuple[Unfinished, ...]:
        """Samples of a job that are being drawn here right now."""
        role = self._role
        return role.unfinished(job) if isinstance(role, _ServiceHost) else ()

    async def teardown(self, worker: Worker) -> None:
        """End it: drivers stop, committed versions are written, engines end."""
        del worker
        if self._role is not None:
            role, self._role = self._role, None
            await role.close()


class _ServiceHost:
    """A group's service inside its worker."""

    def __init__(
        self,
        worker: Worker,
        group: str,
        state: StateConfig,
        engines: EngineConfig,
        holder: str,
    ) -> None:
        self._worker = worker
        self._engines = engines
        self._state = state
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="plexrl-background")
        self.reporter = Reporter(worker)
        self._store = open_store(
            states_of(state.store), durable=state.is_synced, shared=True, holder=holder
        )
        self._service = GroupService(
            group,
            states=StateManager(
                self._store,
                host_budget_bytes=state.host_budget_bytes,
                pressure_timeout_s=state.pressure_timeout_s,
                retain_versions=state.keep_durable,
                max_unwritten=state.max_unwritten,
            ),
            start_engine=self._start_engine,
            peers=WorkerPeers(worker),
            current_id=_current_key,
            report=self.reporter.take,
            open_store=self._open_store,
            # What is before it starts an engine, computes and stores, at most.
            lease_timeout_s=engines.start_timeout_s + 3 * engines.call_timeout_s,
            hold_timeout_s=HOLD_TIMEOUT_S,
            is_wanted=self._is_wanted,
            device_budget_bytes=engines.device_budget_bytes,
        )
        calls.bind(self._run)
        self._listen(worker)

    def _listen(self, worker: Worker) -> None:
        """Answer other services, and take what the scheduler says."""
        PeerDesk(worker, self._service)
        worker.stream_handlers |= {
            messages.HOSTED: self._hosted,
            messages.COPY: self._copy,
            messages.UPCOMING: self._upcoming,
            messages.FORETELL: self._foretell,
            messages.YIELD: self._yield_lease,
            messages.FORGET: self._forget,
        }

    def _run(self, call: calls.LLMCall, inputs: tuple[object, ...]) -> object:
        """Body of every LLM task; one that yielded its lease comes back by Dask's own means.

        Raises
        ------
        Reschedule
            The rollout stopped in the middle; the scheduler holds it for its next lease.
        """
        found = self._service(call, inputs)
        if isinstance(found, Stopped):
            raise Reschedule
        return found

    def _is_wanted(self, function_id: str) -> bool:
        """Whether a task that waited in its thread was not cancelled meanwhile."""
        task = self._worker.state.tasks.get(function_id)
        return task is not None and task.state != "cancelled"

    def _yield_lease(self, function_id: str) -> None:
        # Off the event loop: an engine that hangs must not cost the worker its heartbeat.
        self._worker.loop.run_in_executor(None, self._service.yield_lease, function_id)

    @contextmanager
    def _open_store(self, name: str) -> Iterator[Store]:
        if not name:
            yield self._store
            return
        with open_store(states_of(name), read_only=True) as store:
            yield store

    def stored(self, start: StartVersion, models: Iterable[str]) -> Stored:
        """Versions of these models of the job that a job shall start from."""
        with self._open_store(start.store) as store:
            return stored_versions(store, start.job, models)

    def unfinished(self, job: str) -> tuple[Unfinished, ...]:
        """Samples of a job that are being drawn right now."""
        return self._service.rollouts.unfinished(job)

    def _start_engine(self, source: ModelSource) -> EngineProcess:
        return EngineProcess(
            source,
            start_timeout_s=self._engines.start_timeout_s,
            call_timeout_s=self._engines.call_timeout_s,
            heartbeat_timeout_s=self._engines.heartbeat_timeout_s,
            ranks=self._engines.ranks if source.kind is EngineKind.TORCH else 1,
        )

    def _hosted(self, payload: bytes) -> None:
        # At once: a function of the job may follow on the same stream.
        hosted = unpack(payload)
        self._service.host(hosted)
        if hosted.cancelled:
            self._worker.loop.run_in_executor(None, self._service.rollouts.cancel, hosted.job)

    def _copy(self, payload: bytes) -> None:
        self._pool.submit(_logged, self._service.guests.copy, unpack(payload))

    def _upcoming(self, payload: bytes) -> None:
        self._pool.submit(_logged, self._expect, payload)

    def _expect(self, payload: bytes) -> None:
        upcoming = unpack(payload)
        self._service.set_next_use(upcoming.order)
        self._service.prefetch(*upcoming.prefetch)

    def _foretell(self, payload: bytes) -> None:
        self._pool.submit(_logged, lambda: self._service.ahead.foretell(unpack(payload)))

    def _forget(self, job: str) -> None:
        # Noted at once: the job may be hosted again by the next message.
        self._service.leave(job)
        self._pool.submit(_logged, self._let_go, job)

    def _let_go(self, job: str) -> None:
        error = ""
        try:
            self._service.forget_job(job, self._state.pressure_timeout_s)
        except Exception as failure:  # noqa: BLE001 (whoever waits for the answer must get one)
            error = str(failure) if isinstance(failure, PlexRLError) else repr(failure)
            logger.warning("group %s still holds job %s: %s", self._service.group, job, error)
        self.reporter.take(JobLetGo(job, self._service.group, self._service.snapshot(), error))

    async def close(self) -> None:
        calls.bind(None)
        self._pool.shutdown(wait=False, cancel_futures=True)
        try:
            await asyncio.to_thread(self._service.close)
        finally:
            self._store.close()


class DriverHost:
    """Drivers of jobs inside a worker without a group."""

    def __init__(
        self,
        worker: Worker,
        state: StateConfig,
        clock: Clock = system_clock,
        clerk: Executor | None = None,
    ) -> None:
        self._worker = worker
        self._clock = clock
        self._store = state.store
        self._registry = JobRegistry(state.store)
        self._log = MetricsLog(state.store)
        # The registry may lie at the other end of a network, and the loop answers heartbeats.
        self._clerk = clerk or ThreadPoolExecutor(1, thread_name_prefix="plexrl-registry")
        self._trackers = ThreadPoolExecutor(1, thread_name_prefix="plexrl-trackers")
        self._client: Client | None = None
        self._starting: asyncio.Future[Client]
        self._drivers: dict[str, asyncio.Task[None]] = {}
        self._ending: set[str] = set()
        """Jobs whose end is noted, and told then."""
        self._telling = asyncio.ensure_future(self._tell_for_ever())
        self._live: dict[str, JobDriver] = {}
        worker.stream_handlers |= {
            messages.DRIVE: self._drive,
            messages.STOP: self._stop,
            messages.ORDER: self._order,
        }

    def _drive(self, payload: bytes) -> None:
        drive = unpack(payload)
        if self._telling.done() or self._telling.cancelling():
            # This worker closes; the scheduler starts the driver elsewhere.
            return
        self._end_driver(drive.name)
        task = asyncio.get_running_loop().create_task(self._run(drive))
        self._drivers[drive.name] = task

    async def _run(self, drive: messages.Drive) -> None:
        try:
            await self._save(drive)
            client = await self._connect()
            driver = JobDriver(drive, client, self._send, self._clock, self._store, self._trackers)
            self._live[drive.name] = driver
            await driver.run()
        except (OSError, StoreError) as error:
            # Of the registry or the connection: the job must not wait for a driver that is gone.
            self._send(messages.DriverEnded(drive.name, self._clock(), f"no driver: {error}"))
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            # By nobody who would end it: the job must not wait for a driver that is gone.
            lost = "no driver: what it waited for was cancelled"
            self._send(messages.DriverEnded(drive.name, self._clock(), lost))
        except Exception as error:
            # Whatever it is, the same.
            logger.exception("the driver of job %s could not be run", drive.name)
            self._send(messages.DriverEnded(drive.name, self._clock(), f"no driver: {error!r}"))
        finally:
            if self._drivers.get(drive.name) is asyncio.current_task():
                del self._drivers[drive.name]
                self._live.pop(drive.name, None)

    async def _save(self, drive: messages.Drive) -> None:
        """Note the job in the registry; one that ran before waits for a store that is away."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                if drive.is_resumed:
                    check_there(self._store)
                save = partial(self._registry.save, drive.name, drive.spec)
                await loop.run_in_executor(self._clerk, save)
            except StoreAwayError as error:
                if not drive.is_resumed:
                    raise
                self._send(messages.DriverWaits(drive.name, f"the store: {error}"))
                await asyncio.sleep(STORE_PAUSE_S)
            else:
                return

    async def _tell_for_ever(self) -> None:
        """Say which drivers live here, so that one that is gone without a word is missed."""
        while True:
            await asyncio.sleep(TELL_S)
            here = messages.DriversHere((*self._drivers, *self._ending))
            self._worker.batched_send({"op": messages.DRIVER, "payload": pack(here)})

    async def _connect(self) -> Client:
        """The client of all drivers here."""
        for attempt in range(1, CONNECT_ATTEMPTS + 1):
            try:
                return await self._ensure_client()
            except OSError as error:
                # Nobody else shall wait for this one.
                self._client = None
                if attempt == CONNECT_ATTEMPTS:
                    raise
                logger.warning("drivers cannot connect to the scheduler yet: %s", error)
        raise AssertionError

    async def _ensure_client(self) -> Client:
        if self._client is None:
            self._client = Client(
                self._worker.scheduler.address,
                asynchronous=True,
                set_as_default=False,
                security=self._worker.security,
                name="plexrl-drivers",
            )
            self._starting = asyncio.ensure_future(self._client)
        # A driver that is ended while it waits must not end the start for those that follow.
        client = self._client
        await asyncio.shield(self._starting)
        return client

    def _send(self, event: DriverEvent) -> None:
        message = {"op": messages.DRIVER, "payload": pack(event)}
        if isinstance(event, messages.IterationCommitted):
            self._clerk.submit(_logged, self._log.append, event.record)
        if isinstance(event, messages.DriverEnded):
            # Told only once it is noted: who sees the end may read the registry.
            self._ending.add(event.job)
            noted = self._clerk.submit(self._note_end, event.job, event.error)
            noted.add_done_callback(
                lambda _: self._worker.loop.add_callback(self._tell_end, event.job, message)
            )
        else:
            self._worker.batched_send(message)

    def _tell_end(self, job: str, message: dict[str, Any]) -> None:
        self._ending.discard(job)
        self._worker.batched_send(message)

    def _note_end(self, job: str, error: str) -> None:
        try:
            self._registry.end(job, error)
        except StoreError:
            logger.exception("the end of job %s is not in the registry", job)

    def _stop(self, job: str) -> None:
        """End the driver of a job that was cancelled."""
        # One that is paused has no driver.
        is_ended = self._end_driver(job)
        self._clerk.submit(self._note_cancelled, job, is_ended=is_ended)

    def _note_cancelled(self, job: str, *, is_ended: bool) -> None:
        if is_ended or self._registry.error(job) is None:
            self._note_end(job, CANCELLED)

    def _order(self, job: str, order: str) -> None:
        """Tell a driver what to do; one that has not begun yet only has to end."""
        driver, task = self._live.get(job), self._drivers.get(job)
        if driver is not None:
            driver.order(messages.Order(order))
        elif task is not None and order != messages.Order.REPLAY:
            self._end_driver(job)
            self._send(messages.DriverSteppedAside(job))

    def _end_driver(self, job: str) -> bool:
        task = self._drivers.pop(job, None)
        self._live.pop(job, None)
        return task is not None and task.cancel()

    async def close(self) -> None:
        """Stop the drivers and let go of the cluster."""
        self._telling.cancel()
        tasks = list(self._drivers.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=STOP_TIMEOUT_S)
        with suppress(TimeoutError):
            await asyncio.wait_for(asyncio.to_thread(self._clerk.shutdown), STOP_TIMEOUT_S)
        self._trackers.shutdown(wait=False, cancel_futures=True)
        if self._client is not None:
            await self._client.close()


def _current_key() -> str:
    worker: Any = get_worker()
    return str(worker.get_current_task())


def _logged(function: Any, *args: object) -> None:
    """Run in the background; an error is worth a line in the log, not a dead thread."""
    try:
        function(*args)
    except Exception:
        logger.exception("background work of the service failed")
