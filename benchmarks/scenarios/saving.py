"""What sharing saves on published shapes: ours beside every other policy, by simulation.

A saving is the share of group-time (priced where groups differ) per unit of work, against groups
of its own for each job, that its name's suffix says; ``_vs_async`` runs both sides one iteration
stale. Everything runs on noise seeds that no planner saw; attainment is the share of jobs whose
mean iteration keeps its limit times its own mean alone with the same draws.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from statistics import fmean
from typing import Any

from benchmarks.contract import BenchmarkResult, Progress
from benchmarks.saving_cases import (
    FULL,
    QUICK,
    Case,
    Planned,
    Size,
    colocated_case,
    limit,
    memory_case,
    other_yields,
    plan_ours,
    pool_case,
    rollmux_case,
    roomy,
    saving_vs_async,
    score_dispatch,
    score_policy,
)
from benchmarks.side_by_side import run_parts
from plexrl.cli.shapes import published_shapes
from solver.policies import POLICIES, planned_order, strict_plan
from solver.scoring import FleetScore
from solver.workloads import Footprint, Tail

SEED = 0
POOL_SIZES = ("235B", "7B", "30B")
POOL_JOBS = (2, 3, 6)
"""Most jobs a pool; the search uses fewer where that is better."""
OTHERS = {"our_cells_plan_order": planned_order, "strict_plan": strict_plan}
"""Dispatches that our cells are run under besides ours."""

Parts = dict[str, Callable[[], Any]]


def run(quick: bool, progress: Progress) -> BenchmarkResult:
    """Run every suite; see the module for what the figures mean."""
    shapes = published_shapes()
    size = QUICK if quick else FULL
    pools = [pool_case(shapes, name, most) for name in POOL_SIZES for most in POOL_JOBS]
    singles = [
        rollmux_case(shapes, is_uniform=False),
        rollmux_case(shapes, is_uniform=True),
        colocated_case(shapes, "agentic"),
        colocated_case(shapes, "mixed"),
        memory_case(shapes),
    ]
    processes = rollmux_case(shapes, is_uniform=False, footprint=Footprint.PROCESSES)
    beside = [*(other_yields(case) for case in (singles[0], *singles[2:4])), roomy(singles[0])]
    # The longest first, so that no processor waits for the last one.
    parts = {
        **_our_parts(singles, size, size.seeds),
        **_our_parts([processes], size, size.seeds),
        **_our_parts(beside, size, size.side_seeds),
        **_our_parts(singles[:2], size, size.peer_seeds, is_by_price=True),
        **_our_parts(pools, size, size.seeds),
    }
    planned = run_parts(parts, progress, _described)
    rows = [_best([c for c in pools if c.name == f"plexrl_{n}"], size, planned) for n in POOL_SIZES]
    rows += singles
    others = run_parts(_other_parts(rows, size, planned), progress, _described)
    figures = _pool_figures(pools, size, planned)
    peers = _reported(shapes)
    for case in rows:
        figures |= _rows(case, size, planned, others)
        peers |= _peers(case, size, others)
    for case in singles[:2]:
        figures |= _hourly(case, size, planned)
    figures |= _savings(processes, size.seeds, planned)
    for case in beside:
        figures |= _savings(case, size.side_seeds, planned)
    found = [entry.score for entry in planned.values()]
    figures["slo_attainment_min"] = min(score.attainment for score in found)
    figures["worst_slowdown_to_limit"] = max(score.worst for score in found)
    return BenchmarkResult("saving", figures, peers, SEED)


def _described(result: Planned | FleetScore | float) -> str:
    """A result in a few words."""
    if isinstance(result, float):
        return f"saving {result:.4f}"
    score = result.score if isinstance(result, Planned) else result
    return f"price {score.price:.4g}, work {score.work:.4g}, within limits {score.attainment:.1%}"


def _our_parts(
    cases: Sequence[Case], size: Size, seeds: Sequence[int], *, is_by_price: bool = False
) -> Parts:
    """Planning and scoring of ours."""
    name = "hourly" if is_by_price else "ours"
    return {
        f"{case.key} {name} {seed}": partial(plan_ours, case, size, seed, is_by_price=is_by_price)
        for case in cases
        for seed in seeds
    }


def _ours(case: Case, size: Size, planned: Mapping[str, Planned]) -> list[Planned]:
    return [planned[f"{case.key} ours {seed}"] for seed in size.seeds]


def _saved(case: Case, size: Size, planned: Mapping[str, Planned]) -> float:
    return fmean(e.score.saving(case.own_price) for e in _ours(case, size, planned))


def _best(cases: Sequence[Case], size: Size, planned: Mapping[str, Planned]) -> Case:
    return max(cases, key=lambda case: _saved(case, size, planned))


def _other_parts(cases: Sequence[Case], size: Size, planned: Mapping[str, Planned]) -> Parts:
    """What is scored once our cells are known."""
    parts: Parts = {}
    for case in cases:
        for seed in size.peer_seeds:
            cells = planned[f"{case.key} ours {seed}"]
            parts[f"{case.key} async {seed}"] = partial(saving_vs_async, case, size, seed)
            parts[f"{case.key} heavy {seed}"] = partial(
                score_dispatch, cells.cells, cells.dispatch, size, seed, Tail.PARETO
            )
            for policy in POLICIES:
                part = partial(score_policy, case, size, seed, policy)
                parts[f"{case.key} {policy.name} {seed}"] = part
            for name, dispatch in OTHERS.items():
                part = partial(score_dispatch, cells.cells, dispatch, size, seed)
                parts[f"{case.key} {name} {seed}"] = part
    return parts


def _pool_figures(
    cases: Sequence[Case], size: Size, planned: Mapping[str, Planned]
) -> dict[str, float]:
    """Shared training pools by the most jobs a pool may have, and how many the best ones have."""
    figures: dict[str, float] = {}
    for case in cases:
        figures[f"{case.name}_saving_k{case.market.max_jobs}"] = _saved(case, size, planned)
    for name in POOL_SIZES:
        best = _best([c for c in cases if c.name == f"plexrl_{name}"], size, planned)
        counts = [len(c.jobs) for entry in _ours(best, size, planned) for c in entry.cells]
        figures[f"plexrl_{name}_best_jobs_mean"] = fmean(counts)
    return figures


def _rows(
    case: Case, size: Size, planned: Mapping[str, Planned], others: Mapping[str, Any]
) -> dict[str, float]:
    """Ours against each baseline."""
    name, ours = case.name, _ours(case, size, planned)
    figures = _savings(case, size.seeds, planned)
    stale = [others[f"{case.key} async {seed}"] for seed in size.peer_seeds]
    figures[f"{name}_saving_vs_async"] = fmean(stale)
    for base, price in case.prices.items():
        limits = [limit(case, size.jobs(case, seed), price) for seed in size.seeds]
        figures[f"{name}_limit_vs_{base}"] = fmean(limits)
    limits = [limit(case, size.jobs(case, seed), case.own_price) for seed in size.seeds]
    figures[f"{name}_limit"] = fmean(limits)
    figures[f"{name}_slo_attainment"] = min(entry.score.attainment for entry in ours)
    heavy: list[FleetScore] = [others[f"{case.key} heavy {seed}"] for seed in size.peer_seeds]
    figures[f"{name}_saving_heavy_tail"] = fmean(s.saving(case.own_price) for s in heavy)
    figures[f"{name}_slo_attainment_heavy_tail"] = fmean(s.attainment for s in heavy)
    return figures


def _savings(case: Case, seeds: Sequence[int], planned: Mapping[str, Planned]) -> dict[str, float]:
    """Ours against groups of its own for each job, by what those are."""
    ours = [planned[f"{case.key} ours {seed}"] for seed in seeds]
    vs = {
        base: fmean(entry.score.saving(price) for entry in ours)
        for base, price in case.prices.items()
    }
    figures = {f"{case.name}_saving_vs_{base}": value for base, value in vs.items()}
    if case.name.startswith("rollmux"):
        figures[f"{case.name}_saving_vs_disaggregated"] = vs["split"]
    else:
        figures[f"{case.name}_saving"] = vs["colocated" if case.is_colocated else "split"]
    return figures


def _peers(case: Case, size: Size, others: Mapping[str, Any]) -> dict[str, float]:
    """Every other policy on the same jobs and draws: saving and attainment."""
    found: dict[str, float] = {}
    for name in (*(policy.name for policy in POLICIES), *OTHERS):
        scores: list[FleetScore] = [others[f"{case.key} {name} {s}"] for s in size.peer_seeds]
        found[f"{case.name}_{name}"] = fmean(s.saving(case.own_price) for s in scores)
        found[f"{case.name}_{name}_slo"] = fmean(s.attainment for s in scores)
    return found


def _hourly(case: Case, size: Size, planned: Mapping[str, Planned]) -> dict[str, float]:
    """The measure of RollMux itself: price per hour of what serves all jobs within their limits.

    It counts a slowdown within the limit as free, so it is larger than a saving per unit of work.
    """
    scores = [planned[f"{case.key} hourly {seed}"].score for seed in size.peer_seeds]
    return {
        f"{case.name}_hourly_saving_vs_{base}": fmean(
            1 - score.price / (price * score.num_jobs) for score in scores
        )
        for base, price in (("disaggregated", case.prices["split"]), *case.prices.items())
        if base != "split"
    }


def _reported(shapes: Mapping[str, Any]) -> dict[str, float]:
    """What the publications report."""
    reported = {}
    for name in ("saving_vs_disaggregated", "saving_vs_colocated"):
        value = shapes["rollmux_table6"]["reported"][name]
        reported[f"reported_rollmux_hourly_{name}"] = float(value)
    for size in POOL_SIZES:
        value = shapes["plexrl"]["jobs"][size]["reported_saving_two_jobs"]
        reported[f"reported_plexrl_{size}_saving_k2"] = float(value)
    return reported
