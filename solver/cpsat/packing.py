"""Packs jobs on groups by column generation: duals from GLOP, sets from pricing, choice by CP-SAT.

Three stages share the time: columns until the bound meets the linear master, a dive that fixes
them set by set, and CP-SAT over all columns that could still be part of something better. Every
better plan and every better bound is told at once, so an end by force loses neither.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from solver.bounds import BoundClass
from solver.certificate import Certificate
from solver.cpsat.cyclic import Effort, Ending, shortest_cycle
from solver.cpsat.master import LinearAnswer, LinearMaster
from solver.cpsat.pack_messages import Certified, Packed, Searched
from solver.objective import MILLION, Objective, value_of
from solver.placement.columns import ColumnPool
from solver.placement.duals import Pricer
from solver.placement.knapsack import Ints
from solver.placement.passes import pairs_apart
from solver.placement.realise import Realised, Realiser, plan_of_sets
from solver.plan import Plan, Timeline
from solver.problem import MAX_TICKS, Job, Problem

SHARPEN_S = 1.0
"""Seconds that CP-SAT may look for a timeline that the built one misses."""
HASTY_SHARPEN_S = 0.08
"""The same where there are many jobs."""
MANY_JOBS = 24
OVERPRICE = 1000
"""A job without a group costs as many times the dearest set: more than any plan could save."""
SMOOTHING = 0.5
"""Weight of the best duals so far in those that are priced (Wentges 1997): they swing less."""
TOLERANCE = 1e-6


Tell = Callable[[Packed | Certified | Searched], None]


@dataclass(slots=True, eq=False)
class Generation:
    """Columns of one class of schedules, with the linear master over them."""

    pricer: Pricer
    bound_class: BoundClass
    pool: ColumnPool
    master: LinearMaster
    tell: Tell
    center: Ints | None = None
    best: Certificate | None = None
    answer: LinearAnswer | None = None

    @classmethod
    def of(
        cls,
        problem: Problem,
        objective: Objective,
        bound_class: BoundClass,
        tell: Tell,
        most_passes: int = 1,
    ) -> Generation:
        """Start with each job on a group of its own.

        With several passes only sets are generated that seem to have a timeline, so its duals
        bound nothing and are not told.
        """
        apart = pairs_apart(problem, most_passes) if most_passes > 1 else None
        pricer = Pricer.of(problem, objective, bound_class, apart)
        pool = ColumnPool(
            problem, pricer.kinds, objective, bound_class, pricer.impossible, most_passes
        )
        dearest = max(abs(cell.cost) for _, cell in pricer.cells) if pricer.cells else MILLION
        master = LinearMaster(
            len(problem.jobs),
            [kind.count for kind in pricer.kinds],
            OVERPRICE * max(dearest, MILLION),
            is_cover=objective not in {Objective.GPU_HOURS, Objective.THROUGHPUT},
        )
        made = cls(pricer, bound_class, pool, master, tell)
        for kind in range(len(pricer.kinds)):
            for job in range(len(problem.jobs)):
                made.add(kind, (job,))
        return made

    def add(self, kind: int, jobs: Sequence[int]) -> bool:
        """Add a set of jobs; whether it is new and fits."""
        column = self.pool.add(kind, jobs)
        if column is not None:
            self.master.add(column)
        return column is not None

    def run(self, deadline: float, enough: Callable[[], bool] = lambda: False) -> None:
        """Generate columns until the bound meets the master, or time is up."""
        while time.monotonic() < deadline and not enough():
            self.answer = answer = self.master.solve()
            if answer is None:
                return
            is_smoothed = self.center is not None and bool((self.center != answer.duals).any())
            duals = self._smoothed(answer.duals)
            num_new = self._price(duals, answer.charges)
            reached = -np.inf if self.best is None else self.best.total
            if answer.value - reached < duals.size + abs(answer.value) * TOLERANCE:
                return
            if num_new == 0 and not is_smoothed:
                return
            if num_new == 0:
                self.center = answer.duals

    def start_from(self, duals: Ints) -> None:
        """Price at duals that are known to be good before the master has any of its own."""
        self._price(duals, np.zeros(len(self.pricer.kinds), np.int64))

    def _smoothed(self, duals: Ints) -> Ints:
        if self.center is None:
            return duals
        mixed: Ints = (SMOOTHING * self.center + (1 - SMOOTHING) * duals).astype(np.int64)
        return mixed

    def _price(self, duals: Ints, charges: Ints) -> int:
        """Price all cells at these duals; how many new columns that gave."""
        priced = self.pricer.price(duals, charges, self.pool.theta)
        certificate = self.pricer.certify(duals, charges, priced, self.pool.theta)
        if self.best is None or certificate.total > self.best.total:
            self.best = certificate
            self.center = duals
            if self.pool.most_passes == 1:
                self.tell(Certified(self.bound_class, certificate))
        return sum(
            self.add(kind, entry.jobs)
            for (kind, _), entry in zip(self.pricer.cells, priced, strict=True)
            if entry.value > 0 and entry.jobs
        )


@dataclass(slots=True, eq=False)
class Packing:
    """One packing under way."""

    problem: Problem
    objective: Objective
    deadline: float
    seed: int
    tell: Tell
    most_passes: int = 1
    """Most passes of a job in a cycle."""
    columns: Generation = field(init=False)
    realiser: Realiser = field(init=False)
    best: Plan | None = None
    best_value: int | None = None
    barren: set[int] = field(default_factory=set)
    """Columns whose jobs have no known timeline."""
    taken: tuple[int, ...] = ()
    """Columns of the best plan, as far as they are columns."""

    def __post_init__(self) -> None:
        is_common = self.most_passes == 1
        bound_class = BoundClass.COMMON_CYCLE if is_common else BoundClass.UNIVERSAL
        self.columns = Generation.of(
            self.problem, self.objective, bound_class, self.tell, self.most_passes
        )
        self.realiser = Realiser(self.objective, self._sharpen, self.most_passes)

    @property
    def left_s(self) -> float:
        """Seconds left."""
        return self.deadline - time.monotonic()

    def take(self, plan: Plan) -> None:
        """Start from a valid plan."""
        kind_of = {
            group.id: index
            for index, kind in enumerate(self.columns.pricer.kinds)
            for group in kind.groups
        }
        index_of = {job.id: index for index, job in enumerate(self.problem.jobs)}
        sets: dict[str, list[int]] = {}
        for job, group in plan.placement.items():
            sets.setdefault(group, []).append(index_of[job])
        for group, jobs in sets.items():
            self.columns.add(kind_of[group], jobs)
        self.best, self.best_value = plan, value_of(self.problem, plan, self.objective)

    def is_proven(self) -> bool:
        """Whether the best plan meets the bound: nothing these columns make is better."""
        bound = self.columns.best
        if bound is None or self.best_value is None:
            return False
        if self.objective is Objective.GPU_HOURS:
            return False
        if self.objective is Objective.THROUGHPUT:
            return self.best_value <= bound.total
        return self.best_value <= -(-bound.total // MILLION)

    def offer(self, chosen: Sequence[int]) -> bool:
        """Take a choice of columns as a plan; whether all its sets have timelines."""
        pool = self.columns.pool
        taken = [pool.columns[index] for index in sorted(chosen)]
        sets = [(column.kind, pool.jobs_of(column)) for column in taken]
        plan = plan_of_sets(self.problem, pool.kinds, sets, self.realiser)
        if plan is None:
            return False
        value = value_of(self.problem, plan, self.objective)
        if self.best_value is None or value < self.best_value:
            self.best, self.best_value, self.taken = plan, value, tuple(chosen)
            self.tell(Packed(plan))
        return True

    def realised(self, index: int) -> Realised:
        """What is known about the timelines of a column."""
        pool = self.columns.pool
        column = pool.columns[index]
        return self.realiser.timeline(pool.kinds[column.kind].example.id, pool.jobs_of(column))

    def _sharpen(
        self, group: str, jobs: tuple[Job, ...], built: Timeline
    ) -> tuple[Timeline | None, int]:
        limit = min(job.limit_ticks for job in jobs)
        hint = built if built.cycle_ticks <= limit else None
        most_s = HASTY_SHARPEN_S if len(self.problem.jobs) > MANY_JOBS else SHARPEN_S
        effort = Effort(min(most_s, max(self.left_s, 0.0)), self.seed)
        answer = shortest_cycle(group, jobs, hint, effort)
        if answer.ending is Ending.INFEASIBLE:
            return None, MAX_TICKS
        return answer.timeline, answer.bound_ticks
