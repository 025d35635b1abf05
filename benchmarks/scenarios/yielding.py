"""What rollouts that stop in mid-sample gain: simulated on published shapes, with and without.

The simulator runs the arbiter and rules of the runtime; lengths of rollouts are drawn with heavy
tails (Pareto) and without (lognormal), the same under every rule.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import fmean
from typing import Any

import plexrl.cli
from benchmarks.contract import BenchmarkResult, Progress
from solver.arrangements import Arrangement, Cell, Market, make_cell
from solver.dispatch.yielding import YieldRule
from solver.policies import planned_order
from solver.simulate import simulate
from solver.trace import Outcome
from solver.workloads import Tail, Workload, agentic_suite, mixed_suite, rollmux_suite

SEED = 0
NOISE_SEED = 100
"""Seeds of the lengths begin here."""
RULES: Mapping[str, YieldRule] = {
    "off": YieldRule(max_yields=0),
    "default": YieldRule(),
    "past_expected_length": YieldRule(patience=1.0),
    "gain_4": YieldRule(gain=4.0),
    "twice_at_most": YieldRule(max_yields=2),
    "16_times_at_most": YieldRule(max_yields=16),
}

Suite = Callable[[Mapping[str, Any], int, int], tuple[Workload, ...]]
SUITES: Mapping[str, tuple[Market, Suite]] = {
    "split": (
        Market(Arrangement.SPLIT, 1.0, 1.0, is_yielding=True),
        lambda shapes, seed, n: rollmux_suite(shapes, seed, num_jobs=n, slowdown_limit=None),
    ),
    "mixed": (
        Market(Arrangement.COLOCATED, 1.0, is_yielding=True),
        lambda shapes, seed, n: mixed_suite(shapes, seed, num_jobs=n),
    ),
    "agentic": (
        Market(Arrangement.COLOCATED, 1.0, is_yielding=True),
        lambda shapes, seed, n: agentic_suite(shapes, seed, num_jobs=n),
    ),
}


def run(quick: bool, progress: Progress) -> BenchmarkResult:
    """Slowdowns and rate of work of every suite under each rule, over those without yielding."""
    path = Path(plexrl.cli.__file__).with_name("published_shapes.json")
    shapes = json.loads(path.read_text(encoding="utf-8"))
    num_seeds, cycles = (1, 12) if quick else (6, 40)
    figures: dict[str, float] = {}
    peers: dict[str, float] = {}
    for tail in (Tail.PARETO, Tail.LOGNORMAL):
        for name, (market, suite) in SUITES.items():
            progress(f"{name}, {tail} lengths")
            cells = [
                (make_cell(market, suite(shapes, SEED + seed, num_jobs)), seed)
                for seed in range(num_seeds)
                for num_jobs in (2, 3, 4)
            ]
            found = {rule: [_scores(c, s, cycles, tail, rule) for c, s in cells] for rule in RULES}
            for rule, scores in found.items():
                into = figures if rule == "default" else peers
                into |= _figures(f"{name}_{tail}", rule, scores, found["off"])
    return BenchmarkResult("yielding", figures, peers, SEED)


def _scores(cell: Cell, seed: int, cycles: int, tail: Tail, rule: str) -> tuple[float, ...]:
    """Mean and largest slowdown, work per time, and leases given up per lease."""
    horizon_s = cycles * max(job.mean_s for job in cell.jobs)
    plan, dispatch = planned_order(cell)
    result = simulate(
        cell.compile(NOISE_SEED + seed, horizon_s, tail),
        plan,
        dispatch,
        seed=seed,
        until_s=horizon_s,
        yielding=RULES[rule],
    )
    slowdowns = result.slowdowns.values()
    yields = sum(record.outcome is Outcome.YIELDED for record in result.records)
    rate = sum(1 / slowdown for slowdown in slowdowns)
    return fmean(slowdowns), max(slowdowns), rate, yields / len(result.records)


def _figures(
    case: str, rule: str, scores: list[tuple[float, ...]], off: list[tuple[float, ...]]
) -> dict[str, float]:
    suffix = "" if rule == "default" else f"_{rule}"
    pairs = list(zip(scores, off, strict=True))
    if rule == "off":
        names = ("slowdown_mean", "slowdown_max", "jobs_worth")
        return {f"{case}_{n}_off": fmean(s[i] for s in scores) for i, n in enumerate(names)}
    return {
        f"{case}_slowdown_mean_ratio{suffix}": fmean(s[0] / o[0] for s, o in pairs),
        f"{case}_slowdown_max_ratio{suffix}": fmean(s[1] / o[1] for s, o in pairs),
        f"{case}_work_rate_ratio{suffix}": fmean(s[2] / o[2] for s, o in pairs),
        f"{case}_yields_per_lease{suffix}": fmean(s[3] for s in scores),
    }
