"""What PlexRL adds: to the start of an LLM function, and to an iteration of a job alone.

The peer is the same job as a plain loop: one engine in one process, no Dask, no commits
(`benchmarks.plain_loop`). Plain and PlexRL runs take turns, so that a machine that gets slower
does so for both. A long iteration varies from minute to minute by far more than PlexRL adds to it;
so single ones take turns, and the fraction is the median over such pairs. A second peer is the same
iteration graph on Ray (`benchmarks.peers`).
"""

from __future__ import annotations

import itertools
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import plexrl
from benchmarks.contract import BenchmarkResult, Progress
from benchmarks.peers.interpreter import VARIABLE, interpreter_with, run_peer
from dataflow.jobs import JobSpec
from plexrl.engines.child_environment import child_environment
from solver.trace import LeaseRecord

SEED = 0
TIMEOUT_S = 900.0
WARM_ITERATIONS = 2
"""Iterations at the start of each run that are not counted: caches fill, pages fault in."""


@dataclass(frozen=True, slots=True)
class Case:
    """A job size to measure."""

    name: str
    num_prompts: int
    num_samples: int
    iterations: int
    rounds: int


def run(quick: bool, progress: Progress) -> BenchmarkResult:
    """Measure starts, handoffs, and what an iteration of a job alone costs on top."""
    tiny = Case("tiny", 16, 8, iterations=8 if quick else 24, rounds=1 if quick else 3)
    long = Case("long", 192, 16, WARM_ITERATIONS + 1, rounds=2 if quick else 12)
    base = plexrl.tiny_base("letters", seed=SEED)
    figures: dict[str, float] = {}
    peers: dict[str, float] = {}
    with (
        tempfile.TemporaryDirectory() as store,
        plexrl.LocalCluster(groups=1, store=store) as cluster,
    ):
        plain: list[float] = []
        ours: list[float] = []
        for index in range(tiny.rounds):
            progress(f"tiny: round {index + 1} of {tiny.rounds}, plain loop")
            plain += _plain_iterations_s(base, tiny)
            progress(f"tiny: round {index + 1} of {tiny.rounds}, PlexRL")
            ours += _iterations_s(cluster, base, f"tiny-{index}", tiny)[WARM_ITERATIONS:]
        plain_s, ours_s = statistics.median(plain), statistics.median(ours)
        peers["plain_iteration_s_tiny"] = plain_s
        figures["iteration_s_tiny"] = ours_s
        figures["alone_overhead_ms"] = 1000 * (ours_s - plain_s)
        figures["iteration_ms"] = 1000 * ours_s
        figures |= _starts(cluster.trace().leases)
        progress("handoffs between two jobs")
        figures |= _handoffs(cluster, base, tiny)
        _pairs(cluster, base, long, progress, figures, peers)
    figures |= _ray(base, tiny, progress)
    return BenchmarkResult("overhead", figures, peers, SEED)


def _iterations_s(cluster: plexrl.LocalCluster, base: str, name: str, case: Case) -> list[float]:
    """Seconds of the iterations of a job alone."""
    run = cluster.submit(overhead_job(base, name, case))
    run.result(TIMEOUT_S)
    return [row["duration_s"] for row in run.metrics()]


def _pairs(
    cluster: plexrl.LocalCluster,
    base: str,
    case: Case,
    progress: Progress,
    figures: dict[str, float],
    peers: dict[str, float],
) -> None:
    """What PlexRL adds to a long iteration, as a share of it: single ones take turns."""
    plain: list[float] = []
    ours: list[float] = []
    with _plain_loop(base, replace(case, iterations=case.rounds + 2)) as iterate:
        iterate()
        for index in range(case.rounds):
            progress(f"{case.name}: pair {index + 1} of {case.rounds}")
            plain.append(iterate())
            ours.append(_iterations_s(cluster, base, f"{case.name}-{index}", case)[-1])
    fractions = [a / b - 1 for a, b in zip(ours, plain, strict=True)]
    quarters = statistics.quantiles(fractions, n=4)
    figures[f"iteration_s_{case.name}"] = statistics.median(ours)
    peers[f"plain_iteration_s_{case.name}"] = statistics.median(plain)
    figures["alone_overhead_fraction"] = statistics.median(fractions)
    figures["alone_overhead_fraction_lower_quarter"] = quarters[0]
    figures["alone_overhead_fraction_upper_quarter"] = quarters[2]


def overhead_job(base: str, name: str, case: Case) -> JobSpec:
    """The job that is measured."""
    return plexrl.grpo(
        model=base,
        task="ascending",
        iterations=case.iterations,
        name=name,
        seed=SEED,
        num_prompts=case.num_prompts,
        num_samples=case.num_samples,
        commit_every=case.iterations,
    )


def _ray(base: str, case: Case, progress: Progress) -> dict[str, float]:
    """The same iteration graph on Ray; nothing where no interpreter has Ray."""
    python = interpreter_with("ray")
    if python is None:
        progress(f"no Ray here: ray_iteration_ms is left out (name a Python with it in {VARIABLE})")
        return {}
    progress(f"{case.name}: the same graph on Ray")
    settings = {
        "folder": base,
        "case": {name: getattr(case, name) for name in Case.__slots__},
    }
    return run_peer(python, "benchmarks.peers.ray_iteration", settings)


def _starts(leases: tuple[LeaseRecord, ...]) -> dict[str, float]:
    """Milliseconds from ready to the engine's start; the group was free, the job was alone."""
    waits_ms = sorted(
        1000 * (lease.started_s + lease.swap_s - lease.ready_s)
        for lease in leases
        if lease.iteration >= WARM_ITERATIONS
    )
    return {
        "ready_to_start_ms_p50": statistics.median(waits_ms),
        "ready_to_start_ms_p99": waits_ms[min(len(waits_ms) - 1, round(0.99 * len(waits_ms)))],
    }


def _handoffs(cluster: plexrl.LocalCluster, base: str, case: Case) -> dict[str, float]:
    """Milliseconds between leases of two jobs, where the later function was ready in time."""
    runs = [cluster.submit(overhead_job(base, f"handoff-{index}", case)) for index in range(2)]
    for run in runs:
        run.result(TIMEOUT_S)
    names = {run.name for run in runs}
    leases = sorted(
        (lease for lease in cluster.trace().leases if lease.job in names and lease.iteration > 0),
        key=lambda lease: lease.started_s,
    )
    gaps_ms = [
        1000 * (after.started_s - before.ended_s)
        for before, after in itertools.pairwise(leases)
        if after.ready_s < before.ended_s
    ]
    return {"handoff_ms_p50": statistics.median(gaps_ms)}


@contextmanager
def _plain_loop(base: str, case: Case) -> Iterator[Callable[[], float]]:
    """The plain loop in a process like those engines run in: a call does an iteration.

    It says the iteration's seconds.
    """
    script = (
        "import json, os, sys, torch\n"
        "torch.set_num_threads(1)\n"
        "from benchmarks.plain_loop import run_plain\n"
        "from benchmarks.scenarios.overhead import Case, overhead_job\n"
        "def wait():\n"
        "    if not sys.stdin.readline():\n"
        "        os._exit(0)\n"
        "def tell(_index, iteration):\n"
        "    print(iteration.total_s, flush=True)\n"
        "    wait()\n"
        "base, case = json.loads(sys.argv[1])\n"
        "wait()\n"
        "run_plain(overhead_job(base, 'plain', Case(**case)), progress=tell)\n"
    )
    fields = {name: getattr(case, name) for name in Case.__slots__}
    process = subprocess.Popen(
        [sys.executable, "-c", script, json.dumps([base, fields])],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=child_environment(),
    )

    def iterate() -> float:
        assert process.stdin is not None
        assert process.stdout is not None
        print(file=process.stdin, flush=True)
        told = process.stdout.readline()
        if not told:
            raise RuntimeError(f"the plain loop ended with exit status {process.wait()}")
        return float(told)

    with process:
        yield iterate


def _plain_iterations_s(base: str, case: Case) -> list[float]:
    """Iteration seconds of the plain loop, those of warming up left out."""
    with _plain_loop(base, case) as iterate:
        return [iterate() for _ in range(case.iterations)][WARM_ITERATIONS:]
