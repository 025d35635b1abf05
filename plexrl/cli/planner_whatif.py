"""What a plan would be with one more job, or with one group fewer."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

import solver
from plexrl.cli.planner_units import value_text
from plexrl.spelling import counted
from solver.objective import value_of

MAX_NEWCOMERS = 8
"""Jobs of which one more is tried."""
MAX_KINDS = 4
"""Kinds of groups of which one fewer is tried."""
MOST_S = 10.0
"""Seconds after which no other question is asked."""


@dataclass(frozen=True, slots=True)
class WhatIf:
    """One question, and the plan for it."""

    name: str
    problem: solver.Problem
    plan: solver.Plan | None
    outcome: str
    """What comes of it, in a sentence."""

    def to_json(self) -> dict[str, object]:
        """The answer as JSON types."""
        plan = None if self.plan is None else self.plan.to_json()
        return {"name": self.name, "outcome": self.outcome, "plan": plan}


def what_if(
    problem: solver.Problem, result: solver.Result, most_passes: int = 1
) -> tuple[WhatIf, ...]:
    """Ask each question, without the solver's process; jobs stay where they are if they can.

    Parameters
    ----------
    problem
        What was planned.
    result
        The plan, and its objective.
    most_passes
        Most passes of a job in a cycle, as it was planned with.
    """
    plan = result.plan
    assert plan is not None
    deadline = time.monotonic() + MOST_S
    found = []
    for name, other in (*_one_more(problem), *_one_fewer(problem, plan)):
        if time.monotonic() > deadline:
            break
        found.append(_answer(name, other, plan, result.objective, most_passes))
    return tuple(found)


def _one_more(problem: solver.Problem) -> Iterator[tuple[str, solver.Problem]]:
    """One more of each job that is not like another one, as far as few are."""
    seen: dict[tuple[object, ...], solver.Job] = {}
    for job in problem.jobs:
        seen.setdefault((job.ops, job.memory_bytes, job.slowdown_limit_permille, job.pool), job)
    for job in list(seen.values())[:MAX_NEWCOMERS]:
        # Jobs over several groups are ordered where they are: one like it is on the same groups.
        pinned, there = (job.pinned_group, ", on its groups") if problem.is_linked else (None, "")
        newcomer = replace(job, id=f"{job.id} (one more)", pinned_group=pinned)
        wider = replace(problem, jobs=(*problem.jobs, newcomer))
        yield f"one more job like {job.id}{there}", wider


def _one_fewer(problem: solver.Problem, plan: solver.Plan) -> Iterator[tuple[str, solver.Problem]]:
    """The groups in use but one: of each kind the one whose jobs are fewest."""
    counts: dict[str, int] = {}
    for group in plan.placement.values():
        counts[group] = counts.get(group, 0) + 1
    pinned = {job.pinned_group for job in problem.jobs}
    used = [group for group in problem.groups if group.id in counts]
    kinds: dict[tuple[object, ...], list[solver.Group]] = {}
    for entry in used:
        if entry.id not in pinned and len(used) > 1:
            kinds.setdefault((entry.pool, entry.memory_bytes, entry.price), []).append(entry)
    for groups in list(kinds.values())[:MAX_KINDS]:
        gone = min(groups, key=lambda group: counts[group.id])
        left = tuple(group for group in used if group is not gone)
        pools = {group.pool for group in left}
        name = f"one group fewer ({gone.id} gone, idle ones unused)"
        if all(job.pool is None or job.pool in pools for job in problem.jobs):
            yield name, replace(problem, groups=left, current=_known(problem.current, left))


def _known(
    current: Mapping[str, str] | None, groups: Sequence[solver.Group]
) -> Mapping[str, str] | None:
    names = {group.id for group in groups}
    return current and {job: group for job, group in current.items() if group in names}


def _answer(
    name: str,
    problem: solver.Problem,
    before: solver.Plan,
    objective: solver.Objective,
    most_passes: int,
) -> WhatIf:
    result = solver.plan(
        problem, previous=before, objective=objective, budget_s=0.0, most_passes=most_passes
    )
    plan = result.plan
    if plan is None:
        reason = solver.explain(problem, most_passes=most_passes) or result.reason
        return WhatIf(name, problem, None, f"No plan: {reason}.")
    moved = sum(plan.placement.get(job, group) != group for job, group in before.placement.items())
    slowdown = fmean(plan.slowdowns_permille.values()) / 1000
    outcome = (
        f"{counted(len(plan.timelines), 'group')} for {counted(len(plan.placement), 'job')}; "
        f"{value_text(objective, value_of(problem, plan, objective))}; mean slowdown "
        f"{slowdown:.3f}; {counted(moved, 'job')} would move. Found without the solver: "
        "with its time there may be a better plan."
    )
    return WhatIf(name, problem, plan, outcome)
