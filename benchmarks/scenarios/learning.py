"""Do the algorithms learn, and how fast, beside TRL and beside a loop without any framework.

The tiny letter task, several seeds an algorithm; jobs of one algorithm share a group. What is
compared takes turns, a few seconds each, in one order and then in the other, and ratios are medians
over these rounds: a machine that gets slower, for a minute or for good, does so for all. The plain
loop is one process, one thread, the same forwards and nothing else; what its matrix products alone
would allow is `matmul_limit_samples_per_s`. TRL, which takes longer to start, takes turns with the
algorithms. It runs by the interpreter that the environment variable ``PLEXRL_PEERS_PYTHON`` names,
or by this one if it has TRL; where there is none its figures are absent.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
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
TURN_ITERATIONS = 14
"""Iterations of one turn of a comparison."""
NUM_TENANTS = 3
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


@dataclass(slots=True)
class TRLRounds:
    """Samples per second of a job alone and of TRL, one value a round, and TRL's rewards."""

    alone: list[float] = field(default_factory=list)
    trl: list[float] = field(default_factory=list)
    curves: list[list[float]] = field(default_factory=list)


def run(quick: bool, progress: Progress) -> BenchmarkResult:
    """Measure rewards by algorithm and seed, samples per second, and accuracy on unseen prompts."""
    iterations = 8 if quick else 60
    seeds = SEEDS[:2] if quick else SEEDS
    algorithms = list(ALGORITHMS)[: 2 if quick else None]
    base = plexrl.tiny_base("letters", seed=0)
    figures: dict[str, float] = {}
    peers: dict[str, float] = {}
    trl = TRLRounds()
    with (
        tempfile.TemporaryDirectory() as store,
        plexrl.LocalCluster(groups=1, store=store) as cluster,
    ):
        bench = Bench(cluster, base, iterations)
        for index, name in enumerate(algorithms):
            progress(f"algorithm {index + 1} of {len(algorithms)}: {name} by {len(seeds)} seeds")
            runs = [bench.start(name, ALGORITHMS[name], seed) for seed in seeds]
            for one in runs:
                one.result(TIMEOUT_S)
            figures |= _curves(name, [_rewards(one) for one in runs])
            if name == RECIPE:
                accuracies = [_accuracy(r, Path(store) / f"{r.name}-model") for r in runs]
                figures["greedy_accuracy_min"] = min(accuracies)
            if index < len(seeds):
                _turn_of_trl(bench, index, trl)
        figures |= _take_turns(bench, 2 if quick else 12, progress, peers)
    progress("limit of the machine")
    peers["matmul_limit_samples_per_s"] = matmul_limit_samples_per_s(base)
    if trl.trl:
        peers |= _curves("trl", trl.curves)
        peers["trl_samples_per_s"] = statistics.median(trl.trl)
        figures |= _over("samples_per_s_over_trl", trl.alone, trl.trl)
    return BenchmarkResult("learning", figures, peers, SEEDS[0])


def _turn_of_trl(bench: Bench, seed: int, rounds: TRLRounds) -> None:
    """One run of TRL, where an interpreter has it, and of ours."""
    found = _trl(bench.base, bench.iterations, seed)
    if found is not None:
        rounds.trl.append(found["samples_per_s"])
        rounds.curves.append(found["rewards"])
        rounds.alone.append(bench.rate("beside-trl", [seed]))


def _take_turns(
    bench: Bench, num_rounds: int, progress: Progress, peers: dict[str, float]
) -> dict[str, float]:
    """Plain loop, one job alone and several that share the group; rates of peers go to `peers`."""
    bench = replace(bench, iterations=TURN_ITERATIONS)
    rounds = Rounds()
    turns: list[Callable[[int], None]] = [
        lambda _: rounds.plain_loop.append(_plain_samples_per_s(bench.base, bench.iterations)),
        lambda index: rounds.alone.append(bench.rate(f"alone-{index}", [0])),
        lambda index: rounds.together.append(bench.rate(f"tenants-{index}", range(NUM_TENANTS))),
    ]
    for index in range(num_rounds):
        progress(f"round {index + 1} of {num_rounds}: plain loop, alone, {NUM_TENANTS} at once")
        for turn in turns[:: -1 if index % 2 else 1]:
            turn(index)
    peers["plain_loop_samples_per_s"] = statistics.median(rounds.plain_loop)
    return {
        "samples_per_s": statistics.median(rounds.alone),
        **_over("tenants_samples_per_s_over_alone", rounds.together, rounds.alone),
        **_over("samples_per_s_over_plain_loop", rounds.alone, rounds.plain_loop),
    }


def _over(name: str, ours: Sequence[float], peer: Sequence[float]) -> dict[str, float]:
    """Median over the rounds of ours ÷ the peer's, and the quarters around it."""
    ratios = [a / b for a, b in zip(ours, peer, strict=True)]
    lower, median, upper = statistics.quantiles(ratios, n=4, method="inclusive")
    return {name: median, f"{name}_lower_quarter": lower, f"{name}_upper_quarter": upper}


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

    def rate(self, kind: str, seeds: Sequence[int]) -> float:
        """Samples per second of jobs of the first recipe at once, of their warm iterations."""
        runs = [self.start(kind, None, seed) for seed in seeds]
        for one in runs:
            one.result(TIMEOUT_S)
        return _samples_per_s(runs)


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
