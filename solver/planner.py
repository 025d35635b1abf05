"""From a problem to a verified plan: greedy at once, then placement and timelines, with proof.

There is a plan from the first milliseconds on. The solver only ever improves it, and nothing of
the solver's is believed before the independent check has passed it.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

from solver.attempt import Attempt, OnIncumbent
from solver.bounds import Bound, BoundClass, Proof, simple_bounds
from solver.cpsat import guard
from solver.errors import PlanError, SolverError
from solver.explain import explain
from solver.improve import MAX_TIMELINE_OPS, improve
from solver.linked import circles, joined, together
from solver.objective import Objective, value_of
from solver.placement.emptying import emptied
from solver.placement.greedy import Placed, greedy_plan, timelines_of
from solver.placement.search import Search, search_placement
from solver.placing import NOTHING_FOUND, place
from solver.plan import Plan
from solver.problem import Job, Problem
from solver.replan import replan
from solver.result import Result, Source, Status
from solver.timeline import greedy_timeline, plan_of

MAX_SEARCHED_JOBS = 13
"""Up to this many jobs every placement is considered; above, best fit decides."""

MAX_PASSES = 20
"""Most passes of a job in a cycle that may be asked for."""
REPEATING = (Objective.GROUPS, Objective.COST)
"""Objectives that repeated passes are planned for."""


def greedy(problem: Problem) -> Plan:
    """A verified plan in milliseconds, without any solver.

    Raises
    ------
    PlanError
        None was found; the message says why, as far as that is known.
    """
    result = plan(problem, budget_s=0.0)
    if result.plan is None:
        raise PlanError(result.reason)
    return result.plan


def plan(
    problem: Problem,
    *,
    previous: Plan | None = None,
    objective: Objective = Objective.ROUND,
    budget_s: float = 5.0,
    seed: int = 0,
    most_passes: int = 1,
    memory_bytes: int = guard.MEMORY_BYTES,
    command: Sequence[str] = guard.CHILD,
    on_incumbent: OnIncumbent = lambda _incumbent: None,
) -> Result:
    """Plan who shares which groups, in what order, with proof.

    Parameters
    ----------
    problem
        What to plan.
    previous
        The plan in force: jobs stay where they are unless moving is cheaper, and if it still
        holds it is the one to beat.
    objective
        What plans are judged by.
    budget_s
        Seconds the call may take; 0 asks for the greedy plan alone.
    seed
        For CP-SAT; the same input and seed give the same plan unless the budget cuts the solver
        short.
    most_passes
        Most passes of a job in the cycle of its group, for the objectives `groups` and `cost`.
        Above 1 a short job may share with a long one, which needs fewer groups; such plans are
        bounded by universal bounds only.
    memory_bytes
        Cap on the address space of the solver's process.
    command
        Command of the solver's process.
    on_incumbent
        Told each better plan met on the way.

    Returns
    -------
    Result
        Its plan, if there is one, has passed `solver.verify`.

    Raises
    ------
    SolverError
        `most_passes` is out of range or does not go with the objective, or the objective not with
        jobs over several groups.
    """
    _check(problem, objective, most_passes)
    began = time.monotonic()
    problem = _with_current(problem, previous)
    attempt = Attempt(problem, began, began + budget_s, on_incumbent, objective, most_passes)
    if problem.is_linked:
        return improve(attempt, _placed_linked(attempt, previous), seed, memory_bytes, command)
    search = _place(attempt, previous)
    _empty(attempt)
    if attempt.best is None and (search is None or search.placed is None):
        reason = explain(problem, most_passes=most_passes)
        # The search knows common cycles only.
        is_searched = search is not None and search.is_complete and most_passes == 1
        if reason or is_searched:
            attempt.reasons.append(reason or "no placement keeps every requirement")
            return attempt.end(Status.INFEASIBLE)
    if objective is not Objective.ROUND or (search is not None and not search.is_complete):
        return place(attempt, seed, memory_bytes, command)
    attempt.bounds.extend(simple_bounds(problem))
    if search is None:
        return place(attempt, seed, memory_bytes, command)
    if search.is_complete and search.floor_ticks is not None and len(problem.groups) > 1:
        attempt.bounds.append(Bound(search.floor_ticks, BoundClass.COMMON_CYCLE, Proof.ENUMERATION))
    placed = _to_improve(attempt, search)
    if placed is None:
        attempt.reasons.append(NOTHING_FOUND)
        return attempt.end(Status.UNKNOWN)
    return improve(attempt, placed, seed, memory_bytes, command)


def _check(problem: Problem, objective: Objective, most_passes: int) -> None:
    if not 1 <= most_passes <= MAX_PASSES:
        raise SolverError(f"most_passes is {most_passes}; give a number from 1 to {MAX_PASSES}")
    if most_passes > 1 and objective not in REPEATING:
        raise SolverError(
            f"most_passes is {most_passes} with the objective {objective}; repeated passes are "
            "planned for the objectives groups and cost only"
        )
    if problem.is_linked and objective is not Objective.ROUND:
        raise SolverError(
            f"the objective is {objective}, and jobs have ops on several groups; these are ordered "
            f"where they are, which is judged by the objective {Objective.ROUND} only"
        )


def _placed_linked(attempt: Attempt, previous: Plan | None) -> Placed:
    """Where jobs over several groups are pinned to; offers what needs no solver."""
    if previous is not None:
        _offer_previous(attempt, previous)
    placed: dict[str, tuple[Job, ...]] = {}
    for job in attempt.problem.jobs:
        home = str(job.pinned_group)
        placed[home] = (*placed.get(home, ()), job)
    lines = [greedy_timeline(c.name, c.jobs) for c in circles(attempt.problem, placed)]
    attempt.offer(plan_of(attempt.problem, lines), Source.GREEDY)
    return placed


def _offer_previous(attempt: Attempt, previous: Plan) -> None:
    try:
        lines = [joined(lines) for lines in together(attempt.problem, previous)]
        attempt.offer(plan_of(attempt.problem, lines), Source.PREVIOUS)
    except (PlanError, KeyError):
        attempt.reasons.append("the previous plan does not fit the problem any more")


def _with_current(problem: Problem, previous: Plan | None) -> Problem:
    if previous is None or problem.current is not None:
        return problem
    return replace(problem, current=current_of(problem, previous))


def current_of(problem: Problem, plan: Plan) -> dict[str, str]:
    """Where a plan has the jobs of a problem, as far as it knows them."""
    jobs = {job.id for job in problem.jobs}
    groups = {group.id for group in problem.groups}
    return {job: group for job, group in plan.placement.items() if job in jobs and group in groups}


def _place(attempt: Attempt, previous: Plan | None) -> Search | None:
    """Offer every plan that needs no solver; the search over placements, if it was affordable."""
    if previous is not None:
        _offer_previous(attempt, previous)
        if attempt.best is None and (mended := replan(attempt.problem, previous)) is not None:
            attempt.offer(mended, Source.REPLANNED)
    if previous is not None and attempt.best is not None and _is_large(attempt.problem):
        return None
    if attempt.problem.has_moves and (staying := _staying(attempt.problem)) is not None:
        attempt.offer(staying, Source.GREEDY)
    found = greedy_plan(attempt.problem)
    if found is not None and (
        attempt.value is None or value_of(attempt.problem, found, attempt.objective) < attempt.value
    ):
        attempt.offer(found, Source.GREEDY)
    if _is_large(attempt.problem):
        return None
    search = search_placement(attempt.problem)
    if search.placed is not None and _is_cheaper(search, attempt):
        attempt.offer(plan_of(attempt.problem, timelines_of(search.placed)), Source.GREEDY)
    return search


def _empty(attempt: Attempt) -> None:
    """Offer the best plan so far without the groups that repeated passes make needless."""
    if attempt.most_passes > 1 and attempt.best is not None:
        fewer = emptied(attempt.problem, attempt.best, attempt.most_passes)
        if fewer is not None:
            attempt.offer(fewer, Source.GREEDY)


def _staying(problem: Problem) -> Plan | None:
    """Everybody where it is now; None if somebody is nowhere, or a group has too many ops."""
    placed: dict[str, tuple[Job, ...]] = {}
    for job in problem.jobs:
        group = (problem.current or {}).get(job.id)
        if group is None:
            return None
        placed[group] = (*placed.get(group, ()), job)
    if any(sum(len(job.ops) for job in jobs) > MAX_TIMELINE_OPS for jobs in placed.values()):
        return None
    return plan_of(problem, timelines_of(placed))


def _is_large(problem: Problem) -> bool:
    return len(problem.jobs) > MAX_SEARCHED_JOBS and len(problem.groups) > 1


def _is_cheaper(search: Search, attempt: Attempt) -> bool:
    if search.floor_ticks is None or attempt.best is None:
        return search.floor_ticks is not None
    return search.floor_ticks < value_of(attempt.problem, attempt.best, Objective.ROUND)


def _to_improve(attempt: Attempt, search: Search) -> Placed | None:
    """The placement worth the solver's time: the one that may become cheapest."""
    if search.placed is not None and _is_cheaper(search, attempt):
        return search.placed
    if attempt.best is None:
        return None
    placed: dict[str, list[Job]] = {}
    for job in attempt.problem.jobs:
        placed.setdefault(attempt.best.placement[job.id], []).append(job)
    return {group: tuple(jobs) for group, jobs in placed.items()}
