"""What PlexRL adds: to the start of an LLM function, and to an iteration of a job alone.

The peer is the same job as a plain loop: one engine in one process, no Dask, no commits
(`benchmarks.plain_loop`). Plain and PlexRL runs take turns, so that a machine that gets slower
does so for both; the fraction is the median over such rounds, each the medians of its iterations,
since a long iteration varies by more than it. A second peer is the same iteration graph on Ray
(`benchmarks.peers`).
"""

from __future__ import annotations

import itertools
import json
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass

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
    long = Case("long", 192, 16, iterations=3 if quick else 5, rounds=1 if quick else 5)
    base = plexrl.tiny_base("letters", seed=SEED)
    figures: dict[str, float] = {}
    peers: dict[str, float] = {}
    with (
        tempfile.TemporaryDirectory() as store,
        plexrl.LocalCluster(groups=1, store=store) as cluster,
    ):
        for case in (tiny, long):
            plain: list[list[float]] = []
            ours: list[list[float]] = []
            for index in range(case.rounds):
                progress(f"{case.name}: round {index + 1} of {case.rounds}, plain loop")
                plain.append(_plain_iterations_s(base, case))
                progress(f"{case.name}: round {index + 1} of {case.rounds}, PlexRL")
                job = overhead_job(base, f"{case.name}-{index}", case)
                run = cluster.submit(job)
                run.result(TIMEOUT_S)
                ours.append([row["duration_s"] for row in run.metrics()[WARM_ITERATIONS:]])
            plain_s, ours_s = (
                statistics.median(itertools.chain(*rounds)) for rounds in (plain, ours)
            )
            peers[f"plain_iteration_s_{case.name}"] = plain_s
            figures[f"iteration_s_{case.name}"] = ours_s
            if case is tiny:
                figures["alone_overhead_ms"] = 1000 * (ours_s - plain_s)
                figures["iteration_ms"] = 1000 * ours_s
                figures |= _starts(cluster.trace().leases)
                progress("handoffs between two jobs")
                figures |= _handoffs(cluster, base, case)
            else:
                figures |= _fractions(ours, plain)
    figures |= _ray(base, tiny, progress)
    return BenchmarkResult("overhead", figures, peers, SEED)


def _fractions(ours: list[list[float]], plain: list[list[float]]) -> dict[str, float]:
    """What PlexRL adds to an iteration, as a share of it: over the rounds, and its range."""
    rounds = [
        statistics.median(a) / statistics.median(b) - 1 for a, b in zip(ours, plain, strict=True)
    ]
    return {
        "alone_overhead_fraction": statistics.median(rounds),
        "alone_overhead_fraction_min": min(rounds),
        "alone_overhead_fraction_max": max(rounds),
    }


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


def _plain_iterations_s(base: str, case: Case) -> list[float]:
    """Iteration seconds of the plain loop, in a process like those engines run in."""
    script = (
        "import json, sys, torch\n"
        "torch.set_num_threads(1)\n"
        "from benchmarks.plain_loop import run_plain\n"
        "from benchmarks.scenarios.overhead import Case, overhead_job\n"
        "base, case = json.loads(sys.argv[1])\n"
        "run = run_plain(overhead_job(base, 'plain', Case(**case)))\n"
        "print(json.dumps([i.total_s for i in run.iterations]))\n"
    )
    fields = {name: getattr(case, name) for name in Case.__slots__}
    done = subprocess.run(
        [sys.executable, "-c", script, json.dumps([base, fields])],
        check=True,
        capture_output=True,
        text=True,
        env=child_environment(),
    )
    seconds: list[float] = json.loads(done.stdout.splitlines()[-1])
    return seconds[WARM_ITERATIONS:]
