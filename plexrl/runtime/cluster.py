"""A cluster on this machine: one worker per group, workers for everything else, one scheduler."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import dask.config
from distributed import Client, Scheduler, SpecCluster
from distributed.security import Security

from plexrl.errors import InputError, ServiceError
from plexrl.planning.config import PlanningConfig
from plexrl.runtime import undisturbed
from plexrl.runtime.accelerators import VISIBLE, share_out, visible_devices
from plexrl.runtime.client import Cluster
from plexrl.runtime.configuration import Settings, read
from plexrl.runtime.gate import PLACES, RESOURCE_PREFIX
from plexrl.runtime.hush import QuietNanny, hushed
from plexrl.runtime.registry import states_of
from plexrl.state.opening import check_usable

CLOSE_TIMEOUT_S = 30.0
"""Seconds the workers may take to write what is committed and to end their engines."""

START_TIMEOUT_S = 120.0
"""Seconds a worker may take to come up: importing torch takes long on a machine that is full."""
LOOK_S = 0.05
"""Seconds between looks whether it has."""

DASK_SETTINGS: Mapping[str, Any] = {
    # The default of 64 KiB makes every large read give its memory back and fault it in again.
    "distributed.nanny.pre-spawn-environ.MALLOC_TRIM_THRESHOLD_": 1 << 30,
    # A restart would take the state of all jobs with it.
    "distributed.scheduler.blocked-handlers": ["restart", "restart_workers"],
    "distributed.scheduler.work-stealing": False,
    # Ten looks a second into each process's threads; at Dask's hundred they show in an iteration.
    "distributed.worker.profile.interval": "100ms",
    # Each process and nanny asks its event loop whether it is late: five times a second say so as
    # well as Dask's fifty, which take a sixteenth of a processor from engines beside them.
    "distributed.admin.tick.interval": "200ms",
    "distributed.comm.timeouts.connect": "30s",
}
"""What PlexRL sets in Dask's configuration for clusters it starts itself."""


class _Workers(SpecCluster):
    """Keeps every nanny: one whose worker dies twice in a row still starts it again."""

    def _update_worker_status(self, op: str, msg: Any) -> None:
        # SpecCluster itself removes a worker that is away for distributed.deploy.
        # lost-worker-timeout after any of its deaths, with its nanny and for good.
        super(SpecCluster, self)._update_worker_status(op, msg)


class LocalCluster(Cluster):
    """Groups on this machine.

    Parameters
    ----------
    groups
        Number of groups; each is one worker process with its engines in child processes.
    cpu_workers
        Workers for rewards, tools and drivers.
    store
        Folder of the Zarr store, or a URL such as ``s3://bucket/prefix``.
    host_budget_bytes
        Host memory for states, per group.
    planning
        Settings of the planning loop.
    dashboard_address
        Where Dask's dashboard listens; None starts none.
    security
        Keys and certificates of all connections, for example ``Security.temporary()``; by default
        what Dask's configuration says under ``distributed.comm.tls``.

    Notes
    -----
    What is None is taken from Dask's configuration (`plexrl.yaml`).

    Examples
    --------
    >>> with plexrl.LocalCluster(groups=1) as cluster:    # doctest: +SKIP
    ...     run = cluster.submit(plexrl.grpo(model=folder, task="ascending", iterations=40))
    ...     run.result()
    """

    def __init__(
        self,
        groups: int | None = None,
        *,
        cpu_workers: int | None = None,
        store: str | Path | None = None,
        host_budget_bytes: int | None = None,
        planning: PlanningConfig | None = None,
        dashboard_address: str | None = "127.0.0.1:0",
        security: Security | None = None,
    ) -> None:
        settings = _settings(groups, cpu_workers, store, host_budget_bytes, planning)
        check_usable(states_of(settings.state.store))
        self._common = _worker_options(security or Security())
        with ExitStack() as ending:
            ending.enter_context(hushed())
            with dask.config.set(DASK_SETTINGS):
                self._dask = _Workers(
                    workers=_worker_specs(settings, self._common),
                    scheduler=_scheduler_spec(settings, dashboard_address, self._common),
                    security=self._common["security"],
                    name="plexrl",
                )
            ending.callback(self._dask.close, timeout=CLOSE_TIMEOUT_S)
            client = Client(self._dask, set_as_default=False, name="plexrl")
            super().__init__(client, settings)
            self._ending = ending.pop_all()

    @property
    def dashboard_link(self) -> str:
        """Address of Dask's dashboard; empty if there is none."""
        return str(self._dask.dashboard_link or "")

    def close(self) -> None:
        """End jobs and processes; what was committed stays in the store."""
        with self._ending, suppress(OSError, TimeoutError):
            super().close()

    def add_group(self, name: str | None = None) -> str:
        """Add a group while jobs run: it is planned for, and jobs that wait for room go there.

        Parameters
        ----------
        name
            Its name; by default ``group-<number>``.

        Returns
        -------
        str
            Its name, once it can serve.

        Raises
        ------
        InputError
            There is one of this name.
        ServiceError
            Its worker did not come up in time.
        """
        taken = set(self._dask.worker_spec)
        group = name or next(g for n in count() if (g := f"group-{n}") not in taken)
        if group in taken:
            raise InputError(f"a group or worker is called {group!r} already; choose another name")
        spec = _group_spec(group, self._common, ())
        with dask.config.set(DASK_SETTINGS):
            self._dask.worker_spec[group] = spec
            self._dask.sync(self._dask._correct_state)  # noqa: SLF001 (as Dask's own scale does)
        deadline_s = time.monotonic() + START_TIMEOUT_S
        while all(row.name != group for row in self.status().groups):
            if time.monotonic() > deadline_s:
                raise ServiceError(
                    f"group {group!r} did not come up within {START_TIMEOUT_S:g} s; look at the "
                    "scheduler's log"
                )
            time.sleep(LOOK_S)
        return group


def _encryption(security: Security) -> dict[str, Any]:
    """Options of a scheduler or worker that speaks as this security wants."""
    return {"security": security, **({"protocol": "tls"} if security.require_encryption else {})}


def _worker_options(security: Security) -> dict[str, Any]:
    """Options that all workers have."""
    return {
        **_encryption(security),
        # Our own budget rules: Dask counts unmanaged memory and would pause or kill the worker.
        "memory_limit": 0,
        "dashboard": False,
        "host": "127.0.0.1",
        "preload": [*dask.config.get("distributed.worker.preload"), undisturbed.__name__],
    }


def _scheduler_spec(
    settings: Settings, dashboard_address: str | None, common: Mapping[str, Any]
) -> dict[str, Any]:
    options = {
        "host": "127.0.0.1",
        "dashboard": dashboard_address is not None,
        "dashboard_address": dashboard_address or ":0",
        "worker_ttl": settings.cluster.worker_ttl_s,
        **_encryption(common["security"]),
    }
    return {"cls": Scheduler, "options": options}


def _group_spec(group: str, common: Mapping[str, Any], devices: Sequence[str]) -> dict[str, Any]:
    options = {**common, "nthreads": PLACES, "resources": {RESOURCE_PREFIX + group: PLACES}}
    if devices:
        options["env"] = {VISIBLE: ",".join(devices)}
    return {"cls": QuietNanny, "options": options}


def _worker_specs(settings: Settings, common: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    shares = share_out(visible_devices(), settings.cluster.groups)
    specs = {
        f"group-{index}": _group_spec(f"group-{index}", common, devices)
        for index, devices in enumerate(shares)
    }
    for index in range(settings.cluster.cpu_workers):
        specs[f"cpu-{index}"] = {
            "cls": QuietNanny,
            "options": {**common, "nthreads": settings.cluster.cpu_threads},
        }
    return specs


def _settings(
    groups: int | None,
    cpu_workers: int | None,
    store: str | Path | None,
    host_budget_bytes: int | None,
    planning: PlanningConfig | None,
) -> Settings:
    settings = read()
    cluster = {"groups": groups, "cpu_workers": cpu_workers}
    state = {
        "store": None if store is None else str(store),
        "host_budget_bytes": host_budget_bytes,
    }
    return replace(
        settings,
        cluster=replace(settings.cluster, **_given(cluster)),
        state=replace(settings.state, **_given(state)),
        planning=planning or settings.planning,
    )


def _given(values: Mapping[str, object]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}
