"""Which worker each job's driver lives in; a driver that lost its worker starts elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace

from plexrl.core.jobs import JobTable
from plexrl.runtime.messages import Drive

MAX_DEATHS = 10
"""Deaths of a driver without a committed iteration between them after which its job is given up:
more than a bad neighbour on the same worker causes before Dask gives that one up."""

SendDrive = Callable[[str, Drive], None]
"""Tells a worker, by its address, to start a driver."""


class DriverPlacement:
    """Places drivers on workers without a group, the one with fewest first.

    Parameters
    ----------
    run
        Id of this life of the cluster; with a count it tells all drivers apart.
    """

    def __init__(self, run: str) -> None:
        self._run = run
        self._num_drives = 0
        self._drives: dict[str, Drive] = {}
        self._held: set[str] = set()
        """Jobs that get no driver for now."""
        self._absent: dict[str, set[str]] = {}
        """Worker → jobs whose driver should live there, and did not when it last told."""
        self._deaths: dict[str, tuple[int, int]] = {}
        """Job → (committed iterations, deaths of its driver since that many)."""

    def add(self, name: str, spec: bytes, *, is_resumed: bool) -> None:
        """Take a job that needs a driver."""
        self._drives[name] = Drive(name, spec, self._run, is_resumed)

    def remove(self, name: str) -> None:
        """Forget a job that ended."""
        self._drives.pop(name, None)
        self._deaths.pop(name, None)
        self._held.discard(name)

    def hold(self, name: str) -> None:
        """Start no driver for a job until it is released."""
        self._held.add(name)

    def release(self, name: str) -> None:
        """Let a job have a driver again."""
        self._held.discard(name)

    def missed(self, worker: str, absent: Collection[str]) -> tuple[str, ...]:
        """Jobs whose driver is absent for the second time: the first may have crossed its start."""
        before = self._absent.pop(worker, set())
        if new := set(absent) - before:
            self._absent[worker] = new
        return tuple(name for name in absent if name in before)

    def note_death(self, name: str, num_committed: int) -> bool:
        """Count a driver that died with its worker; returns whether it may start again."""
        before, num_deaths = self._deaths.get(name, (num_committed, 0))
        num_deaths = num_deaths + 1 if before == num_committed else 1
        self._deaths[name] = (num_committed, num_deaths)
        return num_deaths < MAX_DEATHS

    def place(self, jobs: JobTable, workers: tuple[str, ...], send: SendDrive) -> None:
        """Start a driver for every active job that has none, as far as there are workers."""
        for name in jobs.driven_by("") if workers else ():
            if name in self._held or name not in self._drives:
                continue
            worker = min(workers, key=lambda address: (jobs.num_driven_by(address), address))
            jobs.set_driver(name, worker)
            self._num_drives += 1
            # A driver that starts again must not meet the keys of the one before it, and goes
            # on from whatever that one committed.
            drive = replace(self._drives[name], run=f"{self._run}{self._num_drives}")
            self._drives[name] = replace(drive, is_resumed=True)
            send(worker, drive)
