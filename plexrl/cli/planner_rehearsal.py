"""Runs a plan in simulation, beside other ways to serve the same placement."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from statistics import fmean

import solver
from plexrl.cli.planner_frontier import own_price
from plexrl.errors import InputError
from plexrl.planning.problems import dispatch_plan
from solver.dispatch.events import TICKS_PER_S, DispatchPlan
from solver.dispatch.rules import FirstReady, LargestLagFirst, PlanOrderWithBackfill, StrictOrder
from solver.dispatch.views import Rule
from solver.linked import circles
from solver.simulate import SimJob, SimOp, Tape
from solver.simulate import simulate as run
from solver.workloads import Tail, length_ticks

MAX_ITERATIONS = 200_000
"""Most iterations of one job: they take a minute."""


@dataclass(frozen=True, slots=True)
class Noise:
    """How lengths vary round what the problem says."""

    duration_cv: float
    wait_cv: float
    is_heavy: bool = False
    """Pareto instead of lognormal."""

    def tape(self, job: solver.Job, seed: int, iterations: int) -> Tape:
        """Lengths of a job's ops and waits: a function of job and seed alone."""
        rng = random.Random(f"{seed}:{job.id}")
        tail = Tail.PARETO if self.is_heavy else Tail.LOGNORMAL
        return tuple(
            tuple(
                (
                    max(length_ticks(rng, op.duration_ticks, self.duration_cv, tail), 1),
                    length_ticks(rng, op.wait_ticks, self.wait_cv, tail),
                )
                for op in job.ops
            )
            for _ in range(iterations)
        )


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """One way to serve, over all groups, jobs and seeds."""

    name: str
    slowdown_mean: float
    slowdown_worst: float
    attainment: float
    """Share of (job, seed) whose mean iteration is within its limit times that alone."""
    saving: float
    """Share of priced group-time per unit of work saved over a group of its own for each job."""
    slowdowns: dict[str, float]
    """Job → mean slowdown over seeds."""

    def to_json(self) -> dict[str, object]:
        """The row as JSON types."""
        return asdict(self)


RULES: tuple[tuple[str, bool, Rule], ...] = (
    ("plan order, backfill", True, PlanOrderWithBackfill()),
    ("strict plan", True, StrictOrder()),
    ("largest lag first", False, LargestLagFirst()),
    ("first ready", False, FirstReady()),
)
"""Name, whether it knows the plan, and the rule."""


def rehearse(
    problem: solver.Problem,
    plan: solver.Plan,
    noise: Noise,
    *,
    cycles: int,
    seeds: Iterable[int],
    progress: Callable[[str], object] = lambda _text: None,
) -> tuple[Rehearsal, ...]:
    """Run the placement of a plan under each rule, all with the same draws.

    Raises
    ------
    InputError
        A job ends no iteration in so few cycles.
    """
    seeds = tuple(seeds)
    found = []
    for name, is_planned, rule in RULES:
        progress(f"simulating {name}, {len(seeds)} seeds of {cycles} cycles")
        orders = dispatch_plan(problem, plan) if is_planned else DispatchPlan()
        runs = [_slowdowns(problem, plan, orders, rule, noise, cycles, seed) for seed in seeds]
        found.append(_row(problem, plan, name, runs))
    return tuple(found)


def _slowdowns(
    problem: solver.Problem,
    plan: solver.Plan,
    orders: DispatchPlan,
    rule: Rule,
    noise: Noise,
    cycles: int,
    seed: int,
) -> dict[str, float]:
    """Job → slowdown; groups that no job links run by themselves, since none meets another."""
    slowdowns: dict[str, float] = {}
    placed: dict[str, list[solver.Job]] = {}
    for job in problem.jobs:
        placed.setdefault(plan.placement[job.id], []).append(job)
    for circle in circles(problem, placed):
        jobs, groups = circle.jobs, {group.id for group in circle.groups}
        until = cycles * max(job.limit_ticks for job in jobs)
        # Limits of a thousandfold would make the horizon endless.
        until = min(until, cycles * 4 * sum(job.alone_ticks for job in jobs))
        known = {name: order for name, order in orders.orders.items() if name in groups}
        _check_length(jobs, cycles, until)
        simulated = [_sim_job(job, plan.placement[job.id], noise, seed, until) for job in jobs]
        known_plan = replace(orders, orders=known)
        try:
            done = run(simulated, known_plan, rule, seed=seed, until_s=until / TICKS_PER_S)
        except solver.ProblemError as error:
            raise InputError(f"{cycles} cycles are too few: {error}; raise --cycles") from error
        slowdowns |= done.slowdowns
    return slowdowns


def _check_length(jobs: Sequence[solver.Job], cycles: int, until: int) -> None:
    shortest = min(jobs, key=lambda job: job.alone_ticks)
    count = until // shortest.alone_ticks
    if count > MAX_ITERATIONS:
        raise InputError(
            f"job {shortest.id!r} would pass {count} iterations in {cycles} of the longest on its "
            f"groups; at most {MAX_ITERATIONS} are simulated: lower --cycles"
        )


def _sim_job(job: solver.Job, home: str, noise: Noise, seed: int, until: int) -> SimJob:
    iterations = int(1.5 * until / job.alone_ticks) + 12
    return SimJob(
        name=job.id,
        ops=tuple(
            SimOp(
                op.name,
                op.duration_ticks / TICKS_PER_S,
                op.wait_ticks / TICKS_PER_S,
                (op.group or home, *op.also),
                op.switch_ticks / TICKS_PER_S,
            )
            for op in job.ops
        ),
        iterations=iterations,
        tape=noise.tape(job, seed, iterations),
        ahead_ops=job.ahead_ops,
        staleness=job.staleness,
    )


def _row(
    problem: solver.Problem, plan: solver.Plan, name: str, runs: Sequence[dict[str, float]]
) -> Rehearsal:
    limits = {job.id: job.slowdown_limit_permille / 1000 for job in problem.jobs}
    every = [(job, value) for row in runs for job, value in row.items()]
    price = {job.id: own_price(problem, job, plan.placement[job.id]) for job in problem.jobs}
    work = sum(price[job] / value for job, value in every) / len(runs)
    used = sum(problem.group(timeline.group).price for timeline in plan.timelines)
    return Rehearsal(
        name=name,
        slowdown_mean=fmean(value for _, value in every),
        slowdown_worst=max(value for _, value in every),
        attainment=fmean(value <= limits[job] for job, value in every),
        saving=1 - used / work,
        slowdowns={job: fmean(row[job] for row in runs) for job in limits},
    )
