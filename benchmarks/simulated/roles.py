"""What simulated workers are: the service of a group, or a host of drivers, tools and rewards."""

from __future__ import annotations

import asyncio
from collections import deque
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any

from benchmarks.simulated.shapes import WAIT, Lengths
from benchmarks.simulated.worker import SimulatedWorker
from dataflow.annotations import ANNOTATION
from dataflow.calls import Attached, Trained, VersionToken
from plexrl.clock import Clock
from plexrl.config import StateConfig
from plexrl.core.states import Tier
from plexrl.runtime import messages
from plexrl.runtime.gate import RESOURCE_PREFIX
from plexrl.runtime.messages import pack
from plexrl.runtime.worker_plugin import DriverHost
from plexrl.services.reports import (
    JobLetGo,
    LeaseEnded,
    LeaseStarted,
    Report,
    ServiceSnapshot,
)
from solver.trace import Outcome

NUM_THREADS = 10_000
"""Ordinary tasks a simulated host takes at a time: it only waits."""


class CommittedVersions:
    """Stands for the store: which version of each job's model is committed."""

    def __init__(self) -> None:
        self._versions: dict[str, int] = {}

    def newest(self, job: str) -> int:
        """Newest committed version."""
        return self._versions.get(job, 0)

    def commit(self, job: str, version: int) -> None:
        """Commit the version after `version - 1`; again changes nothing."""
        newest = self.newest(job)
        assert version in {newest, newest + 1}, f"{job} commits {version} after {newest}"
        self._versions[job] = version


@dataclass(slots=True, eq=False)
class _Lease:
    key: str
    run_id: int
    call: dict[str, Any]
    started_s: float = 0.0
    swap_s: float = 0.0
    is_wanted: bool = True
    """Whether the scheduler still asks for the result."""


class SimulatedService:
    """The service of one group: one function at a time, in the order they come.

    Parameters
    ----------
    scheduler, group
        Where it joins, and as what.
    lengths
        How long functions take.
    committed
        Shared by all services of a cluster.
    clock
        Clock of the cluster.
    """

    def __init__(
        self,
        scheduler: str,
        group: str,
        lengths: Lengths,
        committed: CommittedVersions,
        clock: Clock,
    ) -> None:
        self.group = group
        self.worker = SimulatedWorker(
            scheduler, group, resources={RESOURCE_PREFIX + group: 1}, num_threads=1
        )
        self.worker.stream_handlers |= {
            "compute-task": self._compute,
            messages.FORGET: self._forget,
        }
        self.worker.on_freed = self._freed
        self._lengths = lengths
        self._committed = committed
        self._clock = clock
        self._queue: deque[_Lease] = deque()
        self._running: _Lease | None = None
        self._resident = ""
        self._is_dead = False

    async def start(self) -> None:
        """Join the cluster."""
        await self.worker.start()

    async def kill(self) -> None:
        """Be gone without a word; what runs is lost."""
        self._is_dead = True
        await self.worker.kill()

    def _compute(self, key: str, run_id: int, annotations: dict[str, Any], **_: object) -> None:
        self._queue.append(_Lease(key, run_id, annotations[ANNOTATION]))
        self._go_on()

    def _freed(self, key: Any) -> None:
        self._queue = deque(lease for lease in self._queue if lease.key != key)
        if self._running is not None and self._running.key == key:
            self._running.is_wanted = False

    def _go_on(self) -> None:
        if self._running is not None or not self._queue or self._is_dead:
            return
        lease = self._running = self._queue.popleft()
        job, op, iteration = (lease.call[name] for name in ("job", "op", "iteration"))
        lease.started_s = self._clock()
        length_s = 0.0
        if iteration >= 0:
            if self._resident != job:
                lease.swap_s = self._lengths.swaps_s[job][op]
            self._resident = job
            length_s = self._lengths.leases_s[job][iteration][op]
        self._report(LeaseStarted(lease.key, self.group, lease.started_s))
        loop = asyncio.get_running_loop()
        loop.call_later(lease.swap_s + length_s, self._end, lease)

    def _end(self, lease: _Lease) -> None:
        if self._is_dead:
            return
        result = self._result(lease.call)
        ended_s = self._clock()
        self._report(
            LeaseEnded(
                lease.key,
                self.group,
                lease.started_s,
                ended_s,
                lease.swap_s,
                Tier.HOST if lease.swap_s else Tier.DEVICE,
                0,
                Outcome.DONE,
                ServiceSnapshot(),
                result if isinstance(result, Trained) else None,
            )
        )
        if lease.is_wanted:
            self.worker.finish(lease.key, lease.run_id, result, ended_s - lease.started_s)
        self._running = None
        self._go_on()

    def _forget(self, job: str) -> None:
        self._report(JobLetGo(job, self.group, ServiceSnapshot()))

    def _result(self, call: dict[str, Any]) -> object:
        job, model, version = call["job"], call["model"], call["version"]
        if call["function"] == "sync":
            newest = self._committed.newest(job)
            return Attached(VersionToken(job, model, newest, "simulated"), newest, newest)
        if call["function"] == "train":
            self._committed.commit(job, version + 1)
            token = VersionToken(job, model, version + 1, "simulated")
            return Trained(token, (("reward_mean", 0.5),))
        return None

    def _report(self, report: Report) -> None:
        self.worker.batched_send({"op": messages.REPORT, "payload": pack(report)})


class SimulatedHost:
    """A worker without a group: real drivers, and tasks that take as long as their annotation says.

    Parameters
    ----------
    scheduler, name
        Where it joins, and as what.
    store
        Folder of the registry of jobs.
    clock
        Clock of the cluster.
    clerk
        Runs what is written; a thread by default.
    """

    def __init__(
        self, scheduler: str, name: str, store: str, clock: Clock, clerk: Executor | None = None
    ) -> None:
        self.worker = SimulatedWorker(scheduler, name, resources={}, num_threads=NUM_THREADS)
        self.worker.stream_handlers["compute-task"] = self._compute
        self.worker.on_freed = self._freed
        self._wanted: dict[Any, int] = {}
        self._is_dead = False
        self._drivers = DriverHost(self.worker, StateConfig(store=store), clock, clerk)

    async def start(self) -> None:
        """Join the cluster."""
        await self.worker.start()

    async def kill(self) -> None:
        """Be gone without a word, drivers included."""
        self._is_dead = True
        await self.worker.kill()
        await self._drivers.close()

    def _compute(self, key: Any, run_id: int, annotations: dict[str, Any], **_: object) -> None:
        self._wanted[key] = run_id
        seconds = float(annotations.get(WAIT, 0.0))
        asyncio.get_running_loop().call_later(seconds, self._end, key, run_id, seconds)

    def _end(self, key: Any, run_id: int, seconds: float) -> None:
        if self._wanted.get(key) == run_id and not self._is_dead:
            del self._wanted[key]
            self.worker.finish(key, run_id, None, seconds)

    def _freed(self, key: Any) -> None:
        self._wanted.pop(key, None)
