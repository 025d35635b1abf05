"""How fast the planner plans, how good its plans are, and what is proven about them.

The suites are those of the published shapes: `mixed` (colocated loops of all kinds) and `memory`
(a shared training pool bound by host memory). The objective is the number of groups: under common
cycles, where every job of a group passes its loop once a cycle, and with repeated passes.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import solver
from benchmarks.brute_force import fewest_groups, has_cycle
from benchmarks.contract import BenchmarkResult, Progress
from benchmarks.job_shops import compare
from benchmarks.saving_cases import colocated_case, memory_case
from plexrl.cli.shapes import published_shapes
from solver.dispatch.events import TICKS_PER_S
from solver.policies import rollmux_like
from solver.timeline import keeps_limits
from solver.workloads import GB, Role, Workload, memory_suite, mixed_suite

SEED = 0
BUDGET_S = 30.0
QUICK_BUDGET_S = 6.0
PROOF_BUDGET_S = 10.0
NUM_PROOFS = 20
NUM_BRUTE_FORCED = 6
"""Problems of up to eight jobs that are also solved by looking at every partition."""
MOST_PASSES = 5
"""Most passes of a job in the cycle of its group, where they may repeat."""
REPEATING = frozenset({"mixed"})
"""Suites in which jobs of different lengths meet."""
MOST_QUICK_JOBS = 64
MOST_PEER_JOBS = 256
"""With more jobs the exact check of a peer's groups takes longer than the planner."""
SUITES: Mapping[str, tuple[Callable[..., tuple[Workload, ...]], frozenset[Role]]] = {
    "mixed": (mixed_suite, frozenset({Role.ROLLOUT, Role.TRAIN})),
    "memory": (memory_suite, frozenset({Role.TRAIN})),
}


Figures = dict[str, float]
Row = Callable[[bool, Progress], tuple[Figures, Figures]]
"""From whether it is a quick run, and who is told: figures, and those of peers."""


def greedy_plans(_quick: bool, progress: Progress) -> tuple[Figures, Figures]:
    """Plans of 2,000 jobs at once."""
    figures = {}
    for name in SUITES:
        progress(f"greedy plan of 2000 jobs, {name}")
        problem = problem_of(published_shapes(), name, 2000)
        began = time.monotonic()
        solver.greedy(problem)
        figures[f"greedy_seconds_2000_{name}"] = time.monotonic() - began
    return {**figures, "greedy_seconds_2000": max(figures.values())}, {}


def best_plans(name: str, num_jobs: int) -> Row:
    """The best plan of a suite, its gaps, and what one more job takes."""

    def solve(quick: bool, progress: Progress) -> tuple[Figures, Figures]:
        if quick and num_jobs > MOST_QUICK_JOBS:
            return {}, {}
        shapes = published_shapes()
        progress(f"{num_jobs} jobs, {name}")
        figures = _solve(shapes, name, num_jobs, QUICK_BUDGET_S if quick else BUDGET_S)
        return figures, _rollmux_like(shapes, name, num_jobs)

    return solve


def proofs(quick: bool, progress: Progress) -> tuple[Figures, Figures]:
    """Optima of small problems, proven and equal to brute force."""
    shapes = published_shapes()
    figures = _prove(shapes, 4 if quick else NUM_PROOFS, progress)
    return figures | _equal_brute_force(shapes, 2 if quick else NUM_BRUTE_FORCED, progress), {}


ROWS: dict[str, Row] = {
    "greedy": greedy_plans,
    **{
        f"{name}_{num_jobs}": best_plans(name, num_jobs)
        for num_jobs in (8, 64, 256, 512)
        for name in SUITES
    },
    "proofs": proofs,
    "jobshop": compare,
}
"""Row → what measures it."""


def run(quick: bool, progress: Progress, only: str | None = None) -> BenchmarkResult:
    """Measure greedy, best plans with their gaps, proofs, replanning and job shops, or one row."""
    figures: Figures = {}
    peers: Figures = {}
    for name, row in ROWS.items():
        if only in {None, name}:
            found, beside = row(quick, progress)
            for figure, value in {**found, **beside}.items():
                progress(f"  {figure} {value:.4g}")
            figures |= found
            peers |= beside
    return BenchmarkResult("solver", figures, peers, SEED)


def problem_of(
    shapes: Mapping[str, Any], name: str, num_jobs: int, seed: int = SEED
) -> solver.Problem:
    """A suite as a problem, with a group for each job at hand."""
    suite, roles = SUITES[name]
    group = shapes["suites"]["groups"]
    memory_bytes = round(group["host_memory_gb"] * GB)
    return solver.Problem(
        tuple(
            solver.Group(f"g{index}", memory_bytes, max_jobs=group["max_jobs"])
            for index in range(num_jobs)
        ),
        tuple(_job(workload, roles) for workload in suite(shapes, seed, num_jobs=num_jobs)),
    )


def _job(workload: Workload, roles: frozenset[Role]) -> solver.Job:
    """Phases of the roles hold the group; the others are waits after the op before them."""
    ops: list[solver.Op] = []
    before_first = 0
    for phase in workload.phases:
        ticks = max(1, round(phase.mean_s * TICKS_PER_S))
        if phase.role in roles:
            is_rollout = phase.role is Role.ROLLOUT
            swap_s = workload.rollout_swap_s if is_rollout else workload.train_swap_s
            ops.append(solver.Op(phase.name, ticks, switch_ticks=round(swap_s * TICKS_PER_S)))
        elif ops:
            ops[-1] = replace(ops[-1], wait_ticks=ops[-1].wait_ticks + ticks)
        else:
            before_first += ticks
    ops[-1] = replace(ops[-1], wait_ticks=ops[-1].wait_ticks + before_first)
    limit = int(workload.slowdown_limit * 1000)
    return solver.Job(workload.name, tuple(ops), workload.memory_bytes, limit)


def _solve(
    shapes: Mapping[str, Any], name: str, num_jobs: int, budget_s: float
) -> dict[str, float]:
    problem = problem_of(shapes, name, num_jobs)
    result = solver.plan(problem, objective=solver.Objective.GROUPS, budget_s=budget_s, seed=SEED)
    key = f"{name}_{num_jobs}"
    figures: dict[str, float] = {
        f"seconds_{key}": result.seconds,
        f"seconds_to_first_{key}": result.incumbents[0].seconds,
        f"seconds_to_best_{key}": result.incumbents[-1].seconds,
        f"groups_greedy_{key}": result.incumbents[0].value,
        f"verified_{key}": _is_valid(problem, result),
    }
    if result.value is not None:
        figures[f"groups_{key}"] = result.value
    gap = result.gap_in(solver.BoundClass.COMMON_CYCLE)
    if gap is not None:
        figures[f"gap_{key}_common_cycle"] = gap
    # With passes the solver looks at every pair of jobs first, which takes its time.
    figures |= _repeat(problem, result, name, 2 * budget_s)
    figures[f"bounds_rechecked_{key}"] = float(_is_rechecked(problem, result.bounds))
    if result.plan is not None and num_jobs >= 64:
        figures |= _replan(problem, result.plan, name, num_jobs)
    return figures


def _repeat(
    problem: solver.Problem, common: solver.Result, name: str, budget_s: float
) -> dict[str, float]:
    """The best plan with repeated passes, and the universal gap: of it, and of the common cycle.

    The solve starts from the common cycles. The strongest universal bound of both solves serves
    both, since it holds for every schedule. Jobs that memory keeps apart gain nothing from more
    passes; there the common cycle serves.
    """
    key = f"{name}_{len(problem.jobs)}"
    found = [common]
    figures: dict[str, float] = {}
    if name in REPEATING:
        result = solver.plan(
            problem,
            previous=common.plan,
            objective=solver.Objective.GROUPS,
            budget_s=budget_s,
            seed=SEED,
            most_passes=MOST_PASSES,
        )
        found.append(result)
        figures[f"seconds_{key}_passes"] = result.seconds
        figures[f"verified_{key}_passes"] = _is_valid(problem, result)
        if result.value is not None:
            figures[f"groups_{key}_passes"] = result.value
    universal = [
        bound.ticks
        for result in found
        for bound in result.bounds
        if bound.bound_class is solver.BoundClass.UNIVERSAL
    ]
    values = [result.value for result in found if result.value is not None]
    if universal and values and common.value is not None:
        figures[f"bound_{key}_universal"] = max(universal)
        figures[f"gap_{key}_universal"] = 1 - max(universal) / min(values)
        figures[f"gap_{key}_universal_of_common_cycle"] = 1 - max(universal) / common.value
    return figures


def _is_valid(problem: solver.Problem, result: solver.Result) -> float:
    return float(result.plan is not None and solver.verify(problem, result.plan).is_valid)


def _is_rechecked(problem: solver.Problem, bounds: Sequence[solver.Bound]) -> bool:
    """Whether every bound by duals holds in the eyes of the independent check."""
    return all(
        solver.recheck(problem, bound) is solver.Recheck.HOLDS
        for bound in bounds
        if bound.proof is solver.Proof.DUALS
    )


def _replan(
    problem: solver.Problem, plan: solver.Plan, name: str, num_jobs: int
) -> dict[str, float]:
    """Seconds until a plan is there that also serves one more job."""
    newcomer = replace(problem.jobs[0], id="newcomer")
    wider = solver.Problem(problem.groups, (*problem.jobs, newcomer))
    began = time.monotonic()
    result = solver.plan(
        wider, previous=plan, objective=solver.Objective.GROUPS, budget_s=0.0, seed=SEED
    )
    seconds = time.monotonic() - began
    moved = sum(
        result.plan is None or result.plan.placement[job] != group
        for job, group in plan.placement.items()
    )
    figures = {
        f"replan_one_job_seconds_{name}_{num_jobs}": seconds,
        f"replan_one_job_moved_{name}_{num_jobs}": float(moved),
    }
    if num_jobs == 512 and name == "mixed":
        figures["replan_one_job_seconds_512"] = seconds
    return figures


def _rollmux_like(shapes: Mapping[str, Any], name: str, num_jobs: int) -> dict[str, float]:
    """Groups that RollMux's rule uses for the same jobs: worst cases, one job after the other.

    The rule knows neither switches nor whether loops interlock: some of its groups have no cycle
    within the limits, and are counted beside.
    """
    if num_jobs > MOST_PEER_JOBS:
        return {}
    suite, _ = SUITES[name]
    case = colocated_case(shapes, name) if name == "mixed" else memory_case(shapes)
    cells = rollmux_like(case.market, suite(shapes, SEED, num_jobs=num_jobs), SEED)
    problem = problem_of(shapes, name, num_jobs)
    sets = [tuple(problem.job(workload.name) for workload in cell.jobs) for cell in cells]
    broken = sum(not keeps_limits(jobs) and not has_cycle(jobs) for jobs in sets)
    return {
        f"groups_rollmux_like_{name}_{num_jobs}": float(sum(c.num_train for c in cells)),
        f"groups_over_limit_rollmux_like_{name}_{num_jobs}": float(broken),
    }


def _small(shapes: Mapping[str, Any], index: int, num_jobs: int) -> solver.Problem:
    """A random problem of few jobs; the suites take turns."""
    name = tuple(SUITES)[index % len(SUITES)]
    return problem_of(shapes, name, num_jobs, random.Random(f"{SEED}:{index}").randrange(10**6))


def _prove(shapes: Mapping[str, Any], count: int, progress: Progress) -> dict[str, float]:
    """Share of random problems of 13 jobs whose optimum is proven, half of each suite."""
    seconds = []
    proven = 0
    for index in range(count):
        progress(f"13 jobs to the proof, {index + 1} of {count}")
        result = solver.plan(
            _small(shapes, index, 13),
            objective=solver.Objective.GROUPS,
            budget_s=PROOF_BUDGET_S,
            seed=SEED,
        )
        proven += result.status is solver.Status.OPTIMAL
        seconds.append(result.seconds)
    return {
        "proven_optimal_13_jobs_fraction": proven / count,
        "proven_optimal_13_jobs_instances": float(count),
        "proven_optimal_13_jobs_seconds_median": statistics.median(seconds),
        "proven_optimal_13_jobs_seconds_max": max(seconds),
    }


def _equal_brute_force(
    shapes: Mapping[str, Any], count: int, progress: Progress
) -> dict[str, float]:
    """Share of problems of six to eight jobs that need as few groups as brute force finds."""
    equal = 0
    for index in range(count):
        progress(f"brute force, {index + 1} of {count}")
        problem = _small(shapes, index, 6 + index % 3)
        result = solver.plan(
            problem, objective=solver.Objective.GROUPS, budget_s=PROOF_BUDGET_S, seed=SEED
        )
        equal += result.status is solver.Status.OPTIMAL and result.value == fewest_groups(problem)
    return {
        "equal_to_brute_force_fraction": equal / count,
        "equal_to_brute_force_instances": float(count),
    }
