"""A whole simulated cluster in one event loop: real scheduler and plugin, simulated workers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import dask
from distributed import Scheduler

from benchmarks.simulated.roles import CommittedVersions, SimulatedHost, SimulatedService
from benchmarks.simulated.shapes import Lengths, ShapedJob, lengths
from benchmarks.simulated.timewarp import AtOnce
from plexrl.clock import Clock
from plexrl.planning.config import PlanningConfig
from plexrl.planning.planner import PlanRequest, Proposal, solve
from plexrl.runtime import messages
from plexrl.runtime.messages import pack
from plexrl.runtime.plugin import PlexRLScheduler

DASK_SETTINGS = {
    "distributed.scheduler.work-stealing": False,
    "distributed.scheduler.active-memory-manager.start": False,
    "distributed.admin.system-monitor.interval": "1h",
    # Simulated workers have no heartbeat.
    "distributed.scheduler.worker-ttl": None,
}
"""What a scheduler does on the side, kept off."""


async def start_scheduler(
    protocol: str,
    planning: PlanningConfig,
    clock: Clock,
    prepare: Callable[[PlexRLScheduler, Scheduler], None] = lambda *_: None,
    solve: Callable[[PlanRequest], Proposal] | None = None,
) -> Scheduler:
    """A Dask scheduler with the plugin.

    Parameters
    ----------
    protocol
        ``inproc`` or ``tcp``.
    planning
        Settings of the planning loop.
    clock
        Clock of the cluster.
    prepare
        Called with plugin and scheduler before the plugin starts.
    solve
        Answers requests for plans in this process; None: a process of its own does.
    """
    with dask.config.set(DASK_SETTINGS):
        scheduler = await Scheduler(
            protocol=protocol,
            host=None if protocol == "inproc" else "127.0.0.1",
            dashboard=False,
            dashboard_address=":0",
            worker_ttl=None,
        )
    plugin = PlexRLScheduler(
        planning, host_budget_bytes=1 << 50, run="simulated", clock=clock, solve=solve
    )
    prepare(plugin, scheduler)
    await plugin.start(scheduler)
    scheduler.add_plugin(plugin)
    return scheduler


class SimulatedCluster:
    """Scheduler, services and hosts in this event loop.

    Parameters
    ----------
    jobs
        All jobs that may be submitted.
    store
        Folder of the registry of jobs.
    planning
        Settings of the planning loop.
    clock
        Clock of the cluster.
    """

    def __init__(
        self, jobs: Sequence[ShapedJob], store: str, planning: PlanningConfig, clock: Clock
    ) -> None:
        self.jobs = {job.name: job for job in jobs}
        self.services: dict[str, SimulatedService] = {}
        self.hosts: dict[str, SimulatedHost] = {}
        self.committed = CommittedVersions()
        self._lengths: Lengths = lengths(jobs)
        self._store = store
        self._planning = planning
        self._clock = clock

    async def start(self) -> None:
        """Start the scheduler; nothing has joined it."""
        self.scheduler = await start_scheduler("inproc", self._planning, self._clock, solve=solve)
        self.plugin: Any = self.scheduler.plugins[PlexRLScheduler.name]
        self.coordinator = self.plugin.view.coordinator

    async def add_group(self, group: str) -> None:
        """Let a group join."""
        service = SimulatedService(
            self.scheduler.address, group, self._lengths, self.committed, self._clock
        )
        self.services[group] = service
        await service.start()

    async def add_host(self, name: str) -> None:
        """Let a worker without a group join."""
        self.hosts[name] = SimulatedHost(
            self.scheduler.address, name, self._store, self._clock, AtOnce()
        )
        await self.hosts[name].start()

    async def submit(self, name: str) -> None:
        """Hand in a job."""
        await self._call(messages.SUBMIT, payload=pack(self.jobs[name].submission()))

    async def cancel(self, name: str) -> None:
        """End a job."""
        await self._call(messages.CANCEL, job=name)

    async def kill_group(self, group: str) -> None:
        """Kill the worker of a group."""
        await self.services.pop(group).kill()

    async def kill_host(self, name: str) -> None:
        """Kill a worker without a group."""
        await self.hosts.pop(name).kill()

    async def close(self) -> None:
        """End everything."""
        for host in self.hosts.values():
            await host.kill()
        for service in self.services.values():
            await service.kill()
        await self.scheduler.close()

    async def _call(self, handler: str, **kwargs: object) -> object:
        return await self.scheduler.handlers[handler](**kwargs)
