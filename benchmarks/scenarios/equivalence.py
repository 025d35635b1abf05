"""Whether jobs whose rollouts vLLM computes learn the same shared as alone.

Bit-identical weights are not promised there, so what is compared is the reward they reach, seed by
seed: equivalent are two ways of running if the 90 % confidence interval of the mean difference lies
within the margin (two one-sided tests at 5 %; Schuirmann, J. Pharmacokinet. Biopharm. 1987).
"""

from __future__ import annotations

import math
import statistics
import tempfile

import plexrl
from benchmarks.contract import BenchmarkResult, Progress
from dataflow.jobs import JobSpec
from plexrl.engines import vllm_settings
from plexrl.runtime.client import Cluster

SEED = 0
MARGIN = 0.1
"""Largest difference of mean rewards (of 0 to 1) that counts as none."""

T_95 = {3: 2.920, 5: 2.132, 8: 1.895}
"""Student's t, one-sided 95 %, by number of seeds."""

TAIL = 5
"""Last iterations whose rewards are averaged."""

TIMEOUT_S = 600.0
ENGINES = {"ascending": "vllm", "descending": "vllm", "calculator": "torch"}
"""Task → engine of its rollouts: three jobs, two engines, one group."""


def run(quick: bool, progress: Progress) -> BenchmarkResult:
    """Measure `reward_equivalent` (1 or 0) and the difference it rests on."""
    if not vllm_settings.is_installed():
        progress(f"vLLM is not installed, nothing is measured: {vllm_settings.INSTALL_CPU}")
        return BenchmarkResult("equivalence", {}, {}, SEED)
    num_seeds, iterations = (3, 10) if quick else (5, 20)
    base = plexrl.tiny_base("letters", seed=SEED)
    differences: list[float] = []
    with (
        tempfile.TemporaryDirectory() as store,
        plexrl.LocalCluster(groups=1, store=store) as cluster,
    ):
        for seed in range(num_seeds):
            progress(f"seed {seed}: each job alone")
            alone: dict[str, float] = {}
            for task in ENGINES:
                alone |= _rewards(cluster, [_job(base, task, seed, iterations, "alone")])
            progress(f"seed {seed}: all jobs at once")
            together = [_job(base, task, seed, iterations, "shared") for task in ENGINES]
            shared = _rewards(cluster, together)
            differences += [
                shared[f"{task}-{seed}-shared"] - alone[f"{task}-{seed}-alone"]
                for task, engine in ENGINES.items()
                if engine == "vllm"
            ]
    return BenchmarkResult("equivalence", _figures(differences, num_seeds), {}, SEED)


def _figures(differences: list[float], num_seeds: int) -> dict[str, float]:
    """Seeds are the independent units: the jobs of one seed are averaged first."""
    per_seed = len(differences) // num_seeds
    means = [
        statistics.fmean(differences[start : start + per_seed])
        for start in range(0, len(differences), per_seed)
    ]
    mean = statistics.fmean(means)
    half_width = T_95[num_seeds] * statistics.stdev(means) / math.sqrt(num_seeds)
    return {
        "reward_equivalent": float(abs(mean) + half_width < MARGIN),
        "reward_difference": mean,
        "reward_difference_half_width": half_width,
        "reward_margin": MARGIN,
        "num_seeds": num_seeds,
    }


def _job(base: str, task: str, seed: int, iterations: int, how: str) -> JobSpec:
    return plexrl.grpo(
        model=base,
        task=task,
        iterations=iterations,
        name=f"{task}-{seed}-{how}",
        seed=seed,
        slowdown_limit=10.0,
        commit_every=iterations,
        rollout_engine=ENGINES[task],
    )


def _rewards(cluster: Cluster, jobs: list[JobSpec]) -> dict[str, float]:
    """Name → mean reward of the last iterations."""
    runs = [cluster.submit(job) for job in jobs]
    rewards = {}
    for run_ in runs:
        run_.result(TIMEOUT_S)
        tail = run_.metrics()[-TAIL:]
        rewards[run_.name] = statistics.fmean(row["reward_mean"] for row in tail)
    return rewards
