"""How close k real jobs on one group come to the bound no schedule can beat.

Each job's busy time is measured with the job alone on the same cluster. Sharing a group, k jobs
cannot finish before the sum of their busy times, nor before the longest of them alone; the
figure is the makespan over the larger of the two. Swaps, handoffs and everything else that
sharing adds count against it. What two groups add is in `benchmarks.two_groups`.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, replace
from functools import partial

import plexrl
from benchmarks import two_groups
from benchmarks.contract import BenchmarkResult, Progress
from dataflow.jobs import JobSpec
from plexrl.core.status import JobStatus
from solver.trace import busy_s

SEED = 0
TIMEOUT_S = 900.0

NUM_PROMPTS = 24
"""Prompts per iteration, 8 samples each: functions of 50 to 300 ms, as short as a function of a
real job ever gets against handoffs of a few."""

TOOL_DELAY_S = {2: 0.0, 3: 0.25, 4: 0.5}
"""k → median seconds the calculator answers late, so that the sum of busy times is at least 1.3
times the longest job: between the two terms any order would do."""


@dataclass(frozen=True, slots=True)
class Alone:
    """One job that had the group for itself."""

    busy_s: float
    """Seconds of its leases, swaps not counted."""
    wall_s: float
    """From its first iteration's begin to its last commit."""


def run(quick: bool, progress: Progress) -> BenchmarkResult:
    """Measure `makespan_ratio_k2` to `_k4` on one group, and all arrangements on two."""
    iterations = 8 if quick else 40
    base = plexrl.tiny_base("calculator", seed=SEED)
    figures: dict[str, float] = {}
    peers: dict[str, float] = {}
    with (
        tempfile.TemporaryDirectory() as store,
        plexrl.LocalCluster(groups=1, store=store) as cluster,
    ):
        _run_alone(cluster, _job(base, "warm-up", 0, iterations=2, delay_s=0.0), progress)
        for k, delay_s in TOOL_DELAY_S.items():
            jobs = [_job(base, f"k{k}-{i}", i, iterations, delay_s) for i in range(k)]
            # Half of them after it: a machine that gets slower does so for both.
            alone = [_run_alone(cluster, job, progress) for job in jobs[: k // 2]]
            progress(f"k = {k}: all together")
            makespan_s, shared_busy_s = _run_together(cluster, jobs)
            alone += [_run_alone(cluster, job, progress) for job in jobs[k // 2 :]]
            load_s = sum(a.busy_s for a in alone)
            longest_s = max(a.wall_s for a in alone)
            figures[f"makespan_ratio_k{k}"] = makespan_s / max(load_s, longest_s)
            figures[f"term_ratio_k{k}"] = load_s / longest_s
            figures[f"makespan_s_k{k}"] = makespan_s
            figures[f"busy_inflation_k{k}"] = shared_busy_s / load_s
            peers[f"one_after_the_other_ratio_k{k}"] = sum(a.wall_s for a in alone) / max(
                load_s, longest_s
            )
        figures["num_errors"] = float(cluster.status().num_errors)

    on_two, others = two_groups.measure(partial(_job, base), 6 if quick else 10, progress)
    return BenchmarkResult("live", {**figures, **on_two}, {**peers, **others}, SEED)


def _job(base: str, name: str, seed: int, iterations: int, delay_s: float) -> JobSpec:
    return plexrl.grpo(
        model=base,
        task="calculator",
        task_options={"tool_median_s": delay_s, "tool_sigma": 0.3},
        iterations=iterations,
        name=name,
        seed=SEED + seed,
        num_prompts=NUM_PROMPTS,
        slowdown_limit=10.0,
        commit_every=iterations,
    )


def _run_alone(cluster: plexrl.LocalCluster, job: JobSpec, progress: Progress) -> Alone:
    progress(f"{job.name} alone")
    name = f"{job.name}-alone"
    status = cluster.submit(replace(job, name=name)).result(TIMEOUT_S)
    leases = [lease for lease in cluster.trace().leases if lease.job == name]
    return Alone(busy_s(le for le in leases if le.iteration >= 0), _wall_s([status]))


def _run_together(cluster: plexrl.LocalCluster, jobs: list[JobSpec]) -> tuple[float, float]:
    runs = [cluster.submit(job) for job in jobs]
    wall_s = _wall_s([run.result(TIMEOUT_S) for run in runs])
    names = {job.name for job in jobs}
    leases = [le for le in cluster.trace().leases if le.job in names and le.iteration >= 0]
    return wall_s, busy_s(leases)


def _wall_s(statuses: list[JobStatus]) -> float:
    ended = [status.ended_s for status in statuses if status.ended_s is not None]
    return max(ended) - min(status.started_s for status in statuses)
