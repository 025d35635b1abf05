"""From a problem to a verified plan: greedy at once, then CP-SAT per group, then proof.

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
from solver.errors import PlanError
from solver.explain import explain
from solver.improve import improve
from solver.placement.greedy import Placed, greedy_plan, timelines_of
from solver.placement.search import Search, search_placement
from solver.plan import Plan
from solver.problem import Problem
from solver.result import Result, Source, Status
from solver.timeline import plan_of

MAX_SEARCHED_JOBS = 13
"""Up to this many jobs every placement is considered; above, best fit decides."""


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
    budget_s: float = 5.0,
    seed: int = 0,
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
    budget_s
        Seconds the call may take; 0 asks for the greedy plan alone.
    seed
        For CP-SAT; the same input and seed give the same plan unless the budget cuts the solver
        short.
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
    """
    began = time.monotonic()
    problem = _with_current(problem, previous)
    attempt = Attempt(problem, began, began + budget_s, on_incumbent)
    search = _place(attempt, previous)
    if attempt.best is None and (search is None or search.placed is None):
        reason = explain(problem)
        if reason or (search is not None and search.is_complete):
            attempt.reasons.append(reason or "no placement keeps every requirement")
            return attempt.end(Status.INFEASIBLE)
    attempt.bounds.extend(simple_bounds(problem))
    if (
        search is not None
        and search.is_complete
        and search.floor_ticks is not None
        and len(problem.groups) > 1
    ):
        attempt.bounds.append(Bound(search.floor_ticks, BoundClass.COMMON_CYCLE, Proof.ENUMERATION))
    placed = _to_improve(attempt, search)
    if placed is None:
        attempt.reasons.append(
            "no placement was found that keeps every requirement, and none was excluded; "
            "add groups or relax slowdown limits"
        )
        return attempt.end(Status.UNKNOWN)
    return improve(attempt, placed, seed, memory_bytes, command)


def _with_current(problem: Problem, previous: Plan | None) -> Problem:
    if previous is None or problem.current is not None:
        return problem
    jobs = {job.id for job in problem.jobs}
    groups = {group.id for group in problem.groups}
    current = {
        job: group for job, group in previous.placement.items() if job in jobs and group in groups
    }
    return replace(problem, current=current)


def _place(attempt: Attempt, previous: Plan | None) -> Search | None:
    """Offer every plan that needs no solver; the search over placements, if it was affordable."""
    if previous is not None:
        try:
            attempt.offer(plan_of(attempt.problem, previous.timelines), Source.PREVIOUS)
        except (PlanError, KeyError):
            attempt.reasons.append("the previous plan does not fit the problem any more")
    found = greedy_plan(attempt.problem)
    if found is not None and (
        attempt.best is None or found.objective_ticks < attempt.best.objective_ticks
    ):
        attempt.offer(found, Source.GREEDY)
    if len(attempt.problem.jobs) > MAX_SEARCHED_JOBS and len(attempt.problem.groups) > 1:
        return None
    search = search_placement(attempt.problem)
    if search.placed is not None and _is_cheaper(search, attempt.best):
        attempt.offer(plan_of(attempt.problem, timelines_of(search.placed)), Source.GREEDY)
    return search


def _is_cheaper(search: Search, best: Plan | None) -> bool:
    return search.floor_ticks is not None and (
        best is None or search.floor_ticks < best.objective_ticks
    )


def _to_improve(attempt: Attempt, search: Search | None) -> Placed | None:
    """The placement worth the solver's time: the one that may become cheapest."""
    if search is not None and search.placed is not None and _is_cheaper(search, attempt.best):
        return search.placed
    if attempt.best is None:
        return None
    return {
        timeline.group: tuple(
            job for job in attempt.problem.jobs if attempt.best.placement[job.id] == timeline.group
        )
        for timeline in attempt.best.timelines
    }
