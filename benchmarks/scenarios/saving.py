"""What sharing saves on published shapes: ours beside every other policy, by simulation.

A saving is the share of group-time (priced where groups differ) per unit of work, against groups
of its own for each job, that its name's suffix says; ``_vs_async`` runs both sides one iteration
stale. Everything runs on noise seeds that no planner saw; attainment is the share of jobs whose
mean iteration keeps its limit times its own mean alone with the same draws.
"""

from __future__ import annotations

from collections.abc import Mapping
from statistics import fmean

from benchmarks.contract import BenchmarkResult, Progress
from benchmarks.saving_cases import (
    FULL,
    QUICK,
    SCORING_SEED,
    Case,
    Planned,
    Size,
    colocated_case,
    limit,
    plan_ours,
    pool_case,
    rollmux_case,
    saving_vs_async,
    score_policy,
)
from plexrl.cli.shapes import published_shapes
from solver.policies import POLICIES, planned_order, strict_plan
from solver.scoring import score_fleet
from solver.workloads import Tail

SEED = 0
POOL_SIZES = ("235B", "7B", "30B")
POOL_JOBS = (2, 3, 6)
"""Most jobs a pool; the search uses fewer where that is better."""


def run(quick: bool, progress: Progress) -> BenchmarkResult:
    """Run every suite; see the module for what the figures mean."""
    shapes = published_shapes()
    size = QUICK if quick else FULL
    figures: dict[str, float] = {}
    peers: dict[str, float] = _reported(shapes)
    attained: list[float] = []
    for name in POOL_SIZES:
        figures |= _pools(shapes, name, size, progress, attained, peers)
    cases = [rollmux_case(shapes, is_uniform=False), rollmux_case(shapes, is_uniform=True)]
    cases += [colocated_case(shapes, "agentic"), colocated_case(shapes, "mixed")]
    for case in cases:
        progress(f"{case.name}: ours")
        planned = [plan_ours(case, size, seed) for seed in size.seeds]
        figures |= _rows(case, size, planned, progress, attained)
        peers |= _policies(case, size, planned, progress)
        if case.name.startswith("rollmux"):
            figures |= _hourly(case, size, progress, attained)
    figures["slo_attainment_min"] = min(attained)
    return BenchmarkResult("saving", figures, peers, SEED)


def _pools(
    shapes: Mapping[str, object],
    name: str,
    size: Size,
    progress: Progress,
    attained: list[float],
    peers: dict[str, float],
) -> dict[str, float]:
    """Shared training pools: two jobs to six a pool, and the best number."""
    figures: dict[str, float] = {}
    best: tuple[float, Case, list[Planned]] | None = None
    for most in POOL_JOBS:
        case = pool_case(shapes, name, most)
        progress(f"{case.name}: at most {most} jobs a pool")
        planned = [plan_ours(case, size, seed) for seed in size.seeds]
        saved = fmean(entry.score.saving(case.own_price) for entry in planned)
        figures[f"{case.name}_saving_k{most}"] = saved
        if best is None or saved > best[0]:
            best = saved, case, planned
    assert best is not None
    _, case, planned = best
    figures[f"{case.name}_best_jobs_mean"] = fmean(
        len(cell.jobs) for entry in planned for cell in entry.cells
    )
    figures |= _rows(case, size, planned, progress, attained)
    peers |= _policies(case, size, planned, progress)
    return figures


def _rows(
    case: Case, size: Size, planned: list[Planned], progress: Progress, attained: list[float]
) -> dict[str, float]:
    """Ours against each baseline."""
    name = case.name
    progress(f"{name}: asynchronous")
    stale = fmean(saving_vs_async(case, size, seed) for seed in size.peer_seeds)
    vs = {
        base: fmean(entry.score.saving(price) for entry in planned)
        for base, price in case.prices.items()
    }
    attained += [entry.score.attainment for entry in planned]
    figures = {f"{name}_saving_vs_{base}": value for base, value in vs.items()}
    figures[f"{name}_saving_vs_async"] = stale
    if name.startswith("rollmux"):
        figures[f"{name}_saving_vs_disaggregated"] = vs["split"]
    else:
        is_colocated = name in {"agentic", "mixed"}
        figures[f"{name}_saving"] = vs["colocated" if is_colocated else "split"]
    figures[f"{name}_limit"] = fmean(limit(case, size.jobs(case, seed)) for seed in size.seeds)
    figures[f"{name}_slo_attainment"] = min(entry.score.attainment for entry in planned)
    heavy = [
        score_fleet(
            entry.cells,
            entry.dispatch,
            [SCORING_SEED + seed],
            cycles=size.peer_cycles,
            tail=Tail.PARETO,
        )
        for seed, entry in zip(size.peer_seeds, planned, strict=False)
    ]
    figures[f"{name}_saving_heavy_tail"] = fmean(s.saving(case.own_price) for s in heavy)
    figures[f"{name}_slo_attainment_heavy_tail"] = fmean(s.attainment for s in heavy)
    return figures


def _policies(
    case: Case, size: Size, planned: list[Planned], progress: Progress
) -> dict[str, float]:
    """Every other policy on the same jobs and draws: saving and attainment."""
    found: dict[str, float] = {}
    for policy in POLICIES:
        progress(f"{case.name}: {policy.name}")
        scores = [score_policy(case, size, seed, policy) for seed in size.peer_seeds]
        found[f"{case.name}_{policy.name}"] = fmean(s.saving(case.own_price) for s in scores)
        found[f"{case.name}_{policy.name}_slo"] = fmean(s.attainment for s in scores)
    for name, dispatch in (("our_cells_plan_order", planned_order), ("strict_plan", strict_plan)):
        progress(f"{case.name}: {name}")
        scores = [
            score_fleet(entry.cells, dispatch, [SCORING_SEED + seed], cycles=size.peer_cycles)
            for seed, entry in zip(size.peer_seeds, planned, strict=False)
        ]
        found[f"{case.name}_{name}"] = fmean(s.saving(case.own_price) for s in scores)
        found[f"{case.name}_{name}_slo"] = fmean(s.attainment for s in scores)
    return found


def _hourly(case: Case, size: Size, progress: Progress, attained: list[float]) -> dict[str, float]:
    """The measure of RollMux itself: price per hour of what serves all jobs within their limits.

    It counts a slowdown within the limit as free, so it is larger than a saving per unit of work.
    """
    progress(f"{case.name}: by price per hour")
    planned = [plan_ours(case, size, seed, is_by_price=True) for seed in size.seeds]
    attained += [entry.score.attainment for entry in planned]
    return {
        f"{case.name}_hourly_saving_vs_{base}": fmean(
            1 - entry.score.price / (price * entry.score.num_jobs) for entry in planned
        )
        for base, price in (("disaggregated", case.prices["split"]), *case.prices.items())
        if base != "split"
    }


def _reported(shapes: Mapping[str, object]) -> dict[str, float]:
    """What the publications report."""
    reported = {}
    rollmux = shapes["rollmux_table6"]
    pools = shapes["plexrl"]
    assert isinstance(rollmux, Mapping)
    assert isinstance(pools, Mapping)
    for name in ("saving_vs_disaggregated", "saving_vs_colocated"):
        reported[f"reported_rollmux_hourly_{name}"] = float(rollmux["reported"][name])
    for size in POOL_SIZES:
        value = pools["jobs"][size]["reported_saving_two_jobs"]
        reported[f"reported_plexrl_{size}_saving_k2"] = float(value)
    return reported
