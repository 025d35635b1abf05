"""A process full of simulated workers: ``python -m benchmarks.simulated.fleet '<JSON>'``."""

from __future__ import annotations

import asyncio
import json
import logging
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

from benchmarks.simulated.roles import CommittedVersions, SimulatedHost, SimulatedService
from benchmarks.simulated.shapes import ShapedJob, lengths
from plexrl.cli.shapes import published_shapes
from plexrl.clock import system_clock
from solver.workloads import agentic_suite, mixed_suite

MIN_ITERATIONS = 2
"""Iterations of the longest jobs."""


@dataclass(frozen=True, slots=True)
class Drawn:
    """Which jobs: the same values give the same jobs in every process."""

    num_jobs: int
    span_s: float
    """Published seconds that each job runs for when it is alone, to the nearest iteration: jobs
    whose iterations are short have more of them, so that all share their group to the end."""
    seed: int
    compression: float

    def jobs(self) -> tuple[ShapedJob, ...]:
        """Half agents, which mostly wait, half of all published kinds of loops."""
        shapes = published_shapes()
        half = self.num_jobs // 2
        workloads = (
            *agentic_suite(shapes, self.seed, num_jobs=half),
            *mixed_suite(shapes, self.seed + 1, num_jobs=self.num_jobs - half),
        )
        return tuple(
            ShapedJob(
                workload,
                max(round(self.span_s / workload.mean_s), MIN_ITERATIONS),
                self.seed,
                self.compression,
            )
            for workload in workloads
        )


@dataclass(frozen=True, slots=True)
class Fleet:
    """The workers of one process."""

    scheduler: str
    drawn: Drawn
    groups: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    store: str = ""
    """Folder of the registry of jobs."""


@contextmanager
def running(fleet: Fleet) -> Iterator[subprocess.Popen[bytes]]:
    """Run a fleet in a process of its own, until the scheduler is gone or the block ends."""
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.simulated.fleet", json.dumps(asdict(fleet))],
    )
    try:
        yield process
    finally:
        process.terminate()
        process.wait()


async def serve(fleet: Fleet) -> None:
    """Start the workers and let them answer until the scheduler is gone."""
    known, committed = lengths(fleet.drawn.jobs()), CommittedVersions()
    workers: list[SimulatedService | SimulatedHost] = [
        SimulatedService(fleet.scheduler, group, known, committed, system_clock)
        for group in fleet.groups
    ]
    workers += [
        SimulatedHost(fleet.scheduler, name, fleet.store, system_clock) for name in fleet.hosts
    ]
    for worker in workers:
        await worker.start()
    await workers[0].worker.wait_gone()


def _read(given: Mapping[str, Any]) -> Fleet:
    drawn = Drawn(**given["drawn"])
    groups, hosts = tuple(given["groups"]), tuple(given["hosts"])
    return Fleet(given["scheduler"], drawn, groups, hosts, given["store"])


if __name__ == "__main__":
    logging.getLogger("distributed").setLevel(logging.ERROR)
    asyncio.run(serve(_read(json.loads(sys.argv[1]))))
