"""Serves the dashboard of a made-up cluster in a process of its own, to be opened and measured.

``python -m benchmarks.cockpit.serving 256 512`` prints the address and ends with its
standard input.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import dask
import psutil
from distributed import Scheduler

from benchmarks.cockpit.tables import BusyTables
from benchmarks.simulated.cluster import DASK_SETTINGS
from plexrl.dashboard.install import install
from plexrl.dashboard.source import REFRESH_S

ADDRESS = "serving at "


@dataclass(frozen=True, slots=True)
class Served:
    """A dashboard in another process."""

    root: str
    """Address its pages begin with."""
    process: psutil.Process

    def cpu_s(self) -> float:
        """Processor seconds it has used."""
        used = self.process.cpu_times()
        return float(used.user + used.system)


@contextmanager
def served(num_groups: int, num_jobs: int) -> Iterator[Served]:
    """A dashboard with that many groups and jobs."""
    command = [sys.executable, "-m", "benchmarks.cockpit.serving", str(num_groups), str(num_jobs)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        try:
            for line in process.stdout:
                if line.startswith(ADDRESS):
                    root = line.removeprefix(ADDRESS).strip()
                    yield Served(root, psutil.Process(process.pid))
                    return
            raise RuntimeError("the process that serves the pages ended before it served")
        finally:
            process.stdin.close()


async def serve(num_groups: int, num_jobs: int) -> None:
    """Serve until standard input ends."""
    tables = BusyTables(num_groups, num_jobs, time.time)
    with dask.config.set(DASK_SETTINGS):
        async with Scheduler(
            host="127.0.0.1", port=0, dashboard=True, dashboard_address="127.0.0.1:0"
        ) as scheduler:
            install(scheduler, tables.view)
            print(f"{ADDRESS}http://127.0.0.1:{scheduler.http_server.port}", flush=True)
            ended = asyncio.create_task(asyncio.to_thread(sys.stdin.read))
            while not ended.done():
                tables.run_until(time.time())
                await asyncio.wait([ended], timeout=REFRESH_S)


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1]), int(sys.argv[2])))
