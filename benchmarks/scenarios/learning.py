"""Do the algorithms learn, and how fast, beside TRL and beside a loop without any framework.

The tiny letter task, several seeds an algorithm; jobs of one algorithm share a group. What is
compared takes turns, one round an algorithm, and ratios are medians over the rounds, so that a
machine that gets slower does so for all. The plain loop is one process, one thread, the same
forwards and nothing else; what its matrix products alone would allow is
`matmul_limit_samples_per_s`. TRL runs by the interpreter that the environment variable
``PLEXRL_PEERS_PYTHON`` names, or by this one if it has TRL; where there is none its figures are
absent.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import plexrl
from benchmarks.contract import BenchmarkResult, Progress
from benchmarks.matmul_limit import matmul_limit_samples_per_s
from benchmarks.peers.interpreter import interpreter_with, run_peer
from benchmarks.scenarios.overhead import Case, _plain_iterations_s
from dataflow.calls import GenerateOptions
from dataflow.datasets import LetterPrompts
from dataflow.jobs import JobSpec
from dataflow.rewards import OrderVerifier
from plexrl.engines.protocol import DrawKey, ModelSource
from plexrl.engines.torch_engine import TorchEngine
from plexrl.runtime.run import Run

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
CURVE_STEP = 10
"""Iterations a point of a reward curve is the mean of."""
TIMEOUT_S = 1800.0
HELD_OUT_SEED = 10_007


@dataclass(slots=True)
class Rounds:
    """Samples per second of what took turns, one value a round, in the same order."""

    alone: list[float] = field(default_factory=list)
    together: list[float] = field(default_factory=list)
    plain_loop: list[float] = field(default_factory=list)
    trl: list[float] = field(default_factory=list)

    def over(self, ours: Sequence[float], peer: Sequence[float]) -> float:
        """Median over the rounds of ours ÷ the peer's, both measured within a minute."""
        return statistics.median(a / b for a, b in zip(ours, peer, strict=False))


def run(quick: bool, progress: Progress) -> BenchmarkResult:
    """Measure rewards by algorithm and seed, samples per second, and accuracy on unseen prompts."""
    iterations = 8 if quick else 60
    seeds = SEEDS[:2] if quick else SEEDS
    algorithms = list(ALGORITHMS)[: 2 if quick else None]
    base = plexrl.tiny_base("letters", seed=0)
    figures: dict[str, float] = {}
    peers: dict[str, float] = {}
    rounds = Rounds()
    trl_curves: list[list[float]] = []
    with (
        tempfile.TemporaryDirectory() as store,
        plexrl.LocalCluster(groups=1, store=store) as cluster,
    ):
        bench = Bench(cluster, base, iterations)
        for index, name in enumerate(algorithms):
            progress(f"round {index + 1} of {len(algorithms)}: alone, {name} by three, peers")
            alone = bench.start("alone", None, index)
            alone.result(TIMEOUT_S)
            rounds.alone.append(_samples_per_s([alone]))
            runs = [bench.start(name, ALGORITHMS[name], seed) for seed in seeds]
            for one in runs:
                one.result(TIMEOUT_S)
            rounds.together.append(_samples_per_s(runs))
            rounds.plain_loop.append(_plain_samples_per_s(base, iterations))
            figures |= _curves(name, [_rewards(one) for one in runs])
            if name == RECIPE:
                accuracies = [_accuracy(r, Path(store) / f"{r.name}-model") for r in runs]
                figures["greedy_accuracy_min"] = min(accuracies)
            if (found := _trl(base, iterations, index) if index < len(seeds) else None) is not None:
                rounds.trl.append(found["samples_per_s"])
                trl_curves.append(found["rewards"])
    progress("limit of the machine")
    peers["matmul_limit_samples_per_s"] = matmul_limit_samples_per_s(base)
    if trl_curves:
        peers |= _curves("trl", trl_curves)
    figures |= _speeds(rounds, peers)
    return BenchmarkResult("learning", figures, peers, SEEDS[0])


def _speeds(rounds: Rounds, peers: dict[str, float]) -> dict[str, float]:
    """Medians over the rounds; those of peers go to `peers`."""
    peers["plain_loop_samples_per_s"] = statistics.median(rounds.plain_loop)
    figures = {
        "samples_per_s": statistics.median(rounds.alone),
        "tenants_samples_per_s_over_alone": rounds.over(rounds.together, rounds.alone),
        "samples_per_s_over_plain_loop": rounds.over(rounds.alone, rounds.plain_loop),
    }
    if rounds.trl:
        peers["trl_samples_per_s"] = statistics.median(rounds.trl)
        figures["samples_per_s_over_trl"] = rounds.over(rounds.alone, rounds.trl)
    return figures


@dataclass(frozen=True, slots=True)
class Bench:
    """A cluster, and what all of its jobs share."""

    cluster: plexrl.LocalCluster
    base: str
    iterations: int

    def start(self, kind: str, algorithm: str | None, seed: int) -> Run:
        """Submit one job."""
        return self.cluster.submit(
            _job(self.base, f"{kind}-{seed}", algorithm, seed, self.iterations)
        )


def _plain_samples_per_s(base: str, iterations: int) -> float:
    case = Case("learning", 16, 8, iterations, 1)
    return SAMPLES / statistics.fmean(_plain_iterations_s(base, case))


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


def _rewards(one: Run) -> list[float]:
    return [row["reward_mean"] for row in one.metrics()]


def _curves(name: str, curves: Sequence[Sequence[float]]) -> dict[str, float]:
    """Mean reward over iterations, and its band over seeds: one point per `CURVE_STEP`."""
    figures: dict[str, float] = {}
    length = len(curves[0])
    for start in range(0, length, CURVE_STEP):
        points = [statistics.fmean(curve[start : start + CURVE_STEP]) for curve in curves]
        end = min(start + CURVE_STEP, length)
        figures[f"reward_{name}_until_{end}"] = statistics.fmean(points)
        figures[f"reward_{name}_until_{end}_min"] = min(points)
        figures[f"reward_{name}_until_{end}_max"] = max(points)
    return figures


def _accuracy(one: Run, folder: Path) -> float:
    """Share of unseen prompts that a trained model answers exactly, drawing greedily."""
    one.export(folder)
    engine = TorchEngine(ModelSource(str(folder), is_trainable=False), "cpu")
    prompts = LetterPrompts(seed=HELD_OUT_SEED).batch(0, 256)
    options = GenerateOptions(num_samples=1, max_new_tokens=8, temperature=0.0)
    samples = engine.generate(prompts, options, DrawKey(0, 0))
    verifier = OrderVerifier("ascending")
    return statistics.fmean(float(verifier(sample) == 1.0) for sample in samples)


def _trl(base: str, iterations: int, seed: int) -> dict[str, Any] | None:
    """TRL's rate and rewards; None where no interpreter has TRL."""
    python = interpreter_with("trl")
    if python is None:
        return None
    settings = {"folder": base, "iterations": iterations, "seed": seed}
    return run_peer(python, "benchmarks.peers.trl_grpo", settings)
