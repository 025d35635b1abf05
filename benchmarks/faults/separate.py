"""Kills nannies, and at last the scheduler, of a Dask cluster whose processes are started apart."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import dask
import psutil
from distributed import Client

import plexrl
from benchmarks.faults.jobs import Yard, yard
from benchmarks.faults.lives import GONE_TIMEOUT_S
from benchmarks.faults.toll import Toll
from benchmarks.faults.victims import active

PAUSE_S = 0.6
START_TIMEOUT_S = 180
WORKERS = {
    "group-0": ("--nthreads", "2", "--resources", "llm:group-0=2"),
    "group-1": ("--nthreads", "2", "--resources", "llm:group-1=2"),
    "cpu": ("--nthreads", "8"),
}
"""Name → options of ``dask worker``."""


class Machines:
    """Starts ``dask scheduler`` and ``dask worker`` as an operator would, and starts them again."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._file = folder / "scheduler.json"
        self.scheduler = self._start("scheduler", "--no-dashboard", "--port", "0")
        self.nannies = {name: self.start_worker(name) for name in WORKERS}

    def start_worker(self, name: str) -> subprocess.Popen[bytes]:
        """A nanny with its worker."""
        return self._start("worker", "--no-dashboard", "--memory-limit", "0", *WORKERS[name])

    def client(self) -> Client:
        """A client, once all workers are there."""
        client = Client(scheduler_file=str(self._file), set_as_default=False)
        client.wait_for_workers(len(WORKERS), timeout=START_TIMEOUT_S)
        return client

    def _start(self, role: str, *options: str) -> subprocess.Popen[bytes]:
        module = f"distributed.cli.dask_{role}"
        where = ("--host", "127.0.0.1", "--scheduler-file", str(self._file))
        return subprocess.Popen(
            [sys.executable, "-m", module, *where, *options],
            env={**os.environ, "DASK_TEMPORARY_DIRECTORY": str(self._folder)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def close(self) -> None:
        """Kill what still runs."""
        for process in (self.scheduler, *self.nannies.values()):
            process.kill()
            process.wait()


@contextmanager
def _machines(folder: Path) -> Iterator[Machines]:
    folder.mkdir()
    machines = Machines(folder)
    try:
        yield machines
    finally:
        machines.close()


def strike(toll: Toll, num_kills: int, seed: int) -> None:
    """Kill nannies while jobs run, each replaced by a new one; at last the scheduler."""
    ground, chance = yard(toll.progress), random.Random(f"{toll.row} {seed}")
    settings = {
        "plexrl.state.store": str(ground.scratch(f"{toll.row}-store")),
        "plexrl.state.host_budget_bytes": ground.host_budget_bytes,
    }
    with ExitStack() as stack:
        stack.enter_context(dask.config.set(settings))
        machines = stack.enter_context(_machines(ground.scratch(f"{toll.row}-machines")))
        client = stack.enter_context(machines.client())
        cluster = plexrl.attach(client)
        round_index = 0
        while toll.kills.total() < num_kills - 1 and not toll.is_over():
            jobs = ground.jobs(f"{toll.row}-{round_index}")
            runs = [(job, cluster.submit(job)) for job in jobs]
            while toll.kills.total() < num_kills - 1 and active(cluster.status()):
                if toll.is_over():
                    break
                time.sleep(chance.uniform(0, PAUSE_S))
                _kill_a_nanny(toll, machines, cluster, chance)
            toll.audit(ground, cluster, runs)
            round_index += 1
        toll.num_plugin_errors += cluster.status().num_errors
        _kill_the_scheduler(toll, machines, cluster, ground)


def _kill_a_nanny(
    toll: Toll, machines: Machines, cluster: plexrl.Cluster, chance: random.Random
) -> None:
    name = chance.choice(list(WORKERS))
    nanny = machines.nannies[name]
    family = psutil.Process(nanny.pid).children(recursive=True)
    jobs = active(cluster.status())
    hit = [job for job, status in jobs.items() if name in {"cpu", status.group}]
    nanny.send_signal(signal.SIGKILL)
    struck_s = time.monotonic()
    nanny.wait()
    toll.kills[name.partition("-")[0]] += 1
    toll.count_left(family, GONE_TIMEOUT_S)
    machines.nannies[name] = machines.start_worker(name)
    toll.progress(f"{toll.row}: {toll.kills.total()}, {name}")
    toll.note_recovery(cluster, hit, struck_s)


def _kill_the_scheduler(
    toll: Toll, machines: Machines, cluster: plexrl.Cluster, ground: Yard
) -> None:
    """Everything ends by itself then."""
    for job in ground.jobs(f"{toll.row}-last"):
        cluster.submit(job)
    toll.wait_until_begun(cluster, any)
    family = [psutil.Process(nanny.pid) for nanny in machines.nannies.values()]
    family += [child for nanny in family for child in nanny.children(recursive=True)]
    machines.scheduler.send_signal(signal.SIGKILL)
    machines.scheduler.wait()
    toll.kills["scheduler"] += 1
    toll.count_left(family, GONE_TIMEOUT_S)
