"""Do the algorithms learn, and how fast, beside TRL and beside a loop without any framework.

The tiny letter task, several seeds an algorithm; jobs of one algorithm share a group. The plain
loop is near the arithmetic limit of the machine: one process, one thread, the same forwards and
nothing else. TRL runs by the interpreter that the environment variable ``PLEXRL_PEERS_PYTHON``
names, or by this one if it has TRL; where there is none its figures are absent.
"""

from __future__ import annotations

import importlib.util
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import plexrl
from benchmarks.contract import BenchmarkResult, Progress
from benchmarks.scenarios.overhead import Case, _plain_iterations_s
from dataflow.calls import GenerateOptions
from dataflow.datasets import LetterPrompts
from dataflow.jobs import JobSpec
from dataflow.rewards import OrderVerifier
from plexrl.engines.protocol import DrawKey, ModelSource
from plexrl.engines.torch_engine import TorchEngine
from plexrl.runtime.client import Run

SEEDS = (0, 1, 2)
RECIPE = "grpo_batch"
"""GRPO with the deviation of the batch: the settings of `plexrl.grpo` without an algorithm."""
ALGORITHMS: dict[str, str | None] = {
    RECIPE: None,
    "dr_grpo": "dr_grpo",
    "rloo": "rloo",
    "cispo": "cispo",
}
SAMPLES = 128
"""Samples per iteration: 16 prompts of 8."""
WARM_ITERATIONS = 2
TIMEOUT_S = 1800.0
HELD_OUT_SEED = 10_007
ROOT = Path(__file__).resolve().parents[2]


def run(quick: bool, progress: Progress) -> BenchmarkResult:
    """Measure rewards by algorithm and seed, samples per second, and accuracy on unseen prompts."""
    iterations = 8 if quick else 60
    seeds = SEEDS[:2] if quick else SEEDS
    algorithms = list(ALGORITHMS.items())[: 2 if quick else None]
    base = plexrl.tiny_base("letters", seed=0)
    figures: dict[str, float] = {}
    with (
        tempfile.TemporaryDirectory() as store,
        plexrl.LocalCluster(groups=1, store=store) as cluster,
    ):
        progress("alone")
        alone = cluster.submit(_job(base, "alone", None, SEEDS[0], iterations))
        alone.result(TIMEOUT_S)
        figures["samples_per_s"] = _samples_per_s([alone])
        for name, algorithm in algorithms:
            progress(f"{name}: {len(seeds)} seeds together")
            runs = [
                cluster.submit(_job(base, f"{name}-{seed}", algorithm, seed, iterations))
                for seed in seeds
            ]
            for one in runs:
                one.result(TIMEOUT_S)
            figures |= _rewards(name, runs)
            if name == RECIPE:
                together = _samples_per_s(runs)
                figures["tenants_samples_per_s_over_alone"] = together / figures["samples_per_s"]
                figures["greedy_accuracy_min"] = min(
                    _accuracy(one, Path(store) / f"{one.name}-model") for one in runs
                )
    peers = _peers(base, iterations, progress)
    for peer in ("plain_loop", "trl"):
        if f"{peer}_samples_per_s" in peers:
            ratio = figures["samples_per_s"] / peers[f"{peer}_samples_per_s"]
            figures[f"samples_per_s_over_{peer}"] = ratio
    return BenchmarkResult("learning", figures, peers, SEEDS[0])


def _peers(base: str, iterations: int, progress: Progress) -> dict[str, float]:
    """The plain loop's figures and TRL's."""
    progress("plain loop")
    case = Case("learning", 16, 8, iterations, 1)
    seconds = statistics.median(_plain_iterations_s(base, case))
    progress("TRL")
    return {"plain_loop_samples_per_s": SAMPLES / seconds, **_trl(base, iterations)}


def _job(base: str, name: str, algorithm: str | None, seed: int, iterations: int) -> JobSpec:
    return plexrl.grpo(
        model=base,
        task="ascending",
        algorithm=algorithm,
        iterations=iterations,
        name=name,
        seed=seed,
        slowdown_limit=10.0,
        commit_every=iterations,
    )


def _samples_per_s(runs: Sequence[Run]) -> float:
    """Samples of all runs over the time from the first warm iteration's end to the last end."""
    rows = [row for one in runs for row in one.metrics()]
    begin_s = min(row["ended_s"] for row in rows if row["iteration"] == WARM_ITERATIONS - 1)
    after = [row["ended_s"] for row in rows if row["ended_s"] > begin_s]
    return SAMPLES * len(after) / (max(after) - begin_s)


def _rewards(name: str, runs: Sequence[Run]) -> dict[str, float]:
    """Mean reward at the begin and the end of training, and the band over seeds."""
    curves = [[row["reward_mean"] for row in one.metrics()] for one in runs]
    window = max(len(curves[0]) // 6, 1)
    first = [statistics.fmean(curve[:window]) for curve in curves]
    last = [statistics.fmean(curve[-window:]) for curve in curves]
    return {
        f"reward_first_{name}": statistics.fmean(first),
        f"reward_last_{name}": statistics.fmean(last),
        f"reward_last_min_{name}": min(last),
        f"reward_last_max_{name}": max(last),
    }


def _accuracy(one: Run, folder: Path) -> float:
    """Share of unseen prompts that a trained model answers exactly, drawing greedily."""
    one.export(folder)
    engine = TorchEngine(ModelSource(str(folder), is_trainable=False), "cpu")
    prompts = LetterPrompts(seed=HELD_OUT_SEED).batch(0, 256)
    options = GenerateOptions(num_samples=1, max_new_tokens=8, temperature=0.0)
    samples = engine.generate(prompts, options, DrawKey(0, 0))
    verifier = OrderVerifier("ascending")
    return statistics.fmean(float(verifier(sample) == 1.0) for sample in samples)


def _trl(base: str, iterations: int) -> dict[str, float]:
    """TRL's figures; none where no interpreter has TRL."""
    python = os.environ.get("PLEXRL_PEERS_PYTHON")
    if python is None and importlib.util.find_spec("trl") is not None:
        python = sys.executable
    if python is None:
        return {}
    settings = {"folder": base, "iterations": iterations, "seed": SEEDS[0]}
    done = subprocess.run(
        [python, "-m", "benchmarks.peers.trl_grpo", json.dumps(settings)],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
    )
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return {f"trl_{name}": value for name, value in found.items()}
