"""The shortest timeline that is not repeated: each job passes once through its groups.

The finite counterpart of the cyclic timeline, and what the literature calls a job shop; its
instances with known optima are the yardstick nobody here wrote.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import ceil

from ortools.sat.python import cp_model

from solver.cpsat.cyclic import ENDINGS, Effort, Ending


@dataclass(frozen=True, slots=True)
class Step:
    """One op of a job that is passed once."""

    group: int
    """Index of the group it holds."""
    duration_ticks: int


@dataclass(frozen=True, slots=True)
class HorizonAnswer:
    """What a solve found."""

    ending: Ending
    length_ticks: int | None
    """When the last op ends; None without a timeline."""
    starts: tuple[tuple[int, ...], ...]
    """Per job the starts of its steps in ticks; empty without a timeline."""
    bound_ticks: int
    """No timeline is shorter; 0 if nothing is proven."""


def shortest_horizon(jobs: Sequence[Sequence[Step]], effort: Effort) -> HorizonAnswer:
    """Minimise the end of the last op: steps of a job in order, a group serves one at a time."""
    model = cp_model.CpModel()
    longest = sum(step.duration_ticks for job in jobs for step in job)
    starts = [[model.new_int_var(0, longest, "") for _ in job] for job in jobs]
    end = model.new_int_var(0, longest, "")
    add_chains(model, jobs, starts, end)
    add_group_exclusivity(model, jobs, starts)
    model.minimize(end)
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = max(effort.seconds, 0.01)
    solver.parameters.num_workers = effort.num_workers
    solver.parameters.random_seed = effort.seed
    ending = ENDINGS[solver.solve(model)]
    bound = ceil(solver.best_objective_bound - 1e-6) if ending is not Ending.INFEASIBLE else 0
    if ending not in {Ending.OPTIMAL, Ending.FEASIBLE}:
        return HorizonAnswer(ending, None, (), bound)
    found = tuple(tuple(solver.value(start) for start in row) for row in starts)
    return HorizonAnswer(ending, solver.value(end), found, bound)


def add_chains(
    model: cp_model.CpModel,
    jobs: Sequence[Sequence[Step]],
    starts: Sequence[Sequence[cp_model.IntVar]],
    end: cp_model.IntVar,
) -> None:
    """Each step starts after the one before it; the end is after every job's last step."""
    for job, row in zip(jobs, starts, strict=True):
        for (step, before), (_, after) in pairwise(zip(job, row, strict=True)):
            model.add(after >= before + step.duration_ticks)
        model.add(end >= row[-1] + job[-1].duration_ticks)


def add_group_exclusivity(
    model: cp_model.CpModel,
    jobs: Sequence[Sequence[Step]],
    starts: Sequence[Sequence[cp_model.IntVar]],
) -> None:
    """A group serves one step at a time."""
    held: dict[int, list[cp_model.IntervalVar]] = {}
    for job, row in zip(jobs, starts, strict=True):
        for step, start in zip(job, row, strict=True):
            interval = model.new_fixed_size_interval_var(start, step.duration_ticks, "")
            held.setdefault(step.group, []).append(interval)
    for intervals in held.values():
        model.add_no_overlap(intervals)
