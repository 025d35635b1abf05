"""Every placement of a few jobs, by branch and bound: exact where best fit only hopes.

A placement is valued by the cycle floors of its groups. The floor is reached by a timeline
nearly always, so the cheapest placement is known before any timeline is built, and its value
bounds every common-cycle plan from below.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from solver.placement.greedy import Bin, Placed
from solver.problem import Job, Problem

MAX_NODES = 20_000
"""Placements of one job looked at before the search gives up: about a second."""


@dataclass(frozen=True, slots=True)
class Search:
    """What a search found."""

    placed: Placed | None
    """The cheapest placement met; None if none was met."""
    floor_ticks: int | None
    """Its price × cycle floor, summed over groups."""
    is_complete: bool
    """Whether nothing was left out: then nothing is cheaper, or nothing exists at all."""


@dataclass(slots=True)
class _State:
    jobs: list[Job]
    bins: list[Bin]
    best: Placed | None = None
    best_ticks: int | None = None
    nodes: int = 0
    keys: list[tuple[object, ...]] = field(default_factory=list)


def search_placement(problem: Problem, *, max_nodes: int = MAX_NODES) -> Search:
    """The placement with the least sum of price × cycle floor, as far as `max_nodes` reach.

    Every requirement but the existence of a timeline is kept; deterministic.
    """
    order = sorted(problem.jobs, key=lambda job: (job.pinned_group is None, -job.alone_ticks))
    state = _State(order, [Bin.empty(group) for group in problem.groups])
    current = problem.current or {}
    state.keys = [
        (group.memory_bytes, group.pool, group.max_jobs, group.price) for group in problem.groups
    ]
    named = {*current.values(), *(job.pinned_group for job in problem.jobs)}
    # A group that some job names is unlike all others.
    state.keys = [
        (*key, group.id if group.id in named else None)
        for key, group in zip(state.keys, problem.groups, strict=True)
    ]
    _extend(state, 0, 0, max_nodes)
    return Search(state.best, state.best_ticks, state.nodes <= max_nodes)


def _extend(state: _State, depth: int, cost: int, max_nodes: int) -> None:
    if depth == len(state.jobs):
        state.best_ticks = cost
        state.best = {here.group.id: here.jobs for here in state.bins if here.jobs}
        return
    job = state.jobs[depth]
    for added, floor, index in _branches(state, job):
        if state.best_ticks is not None and cost + added >= state.best_ticks:
            return
        state.nodes += 1
        if state.nodes > max_nodes:
            return
        here = state.bins[index]
        state.bins[index] = here.with_job(job, floor)
        _extend(state, depth + 1, cost + added, max_nodes)
        state.bins[index] = here


def _branches(state: _State, job: Job) -> list[tuple[int, int, int]]:
    """``(added cost, cycle floor, index of the group)``, cheapest first, one per kind of idle."""
    found = []
    idle: set[tuple[object, ...]] = set()
    for index, here in enumerate(state.bins):
        if not here.jobs:
            if state.keys[index] in idle:
                continue
            idle.add(state.keys[index])
        floor = here.floor_with(job)
        if floor is not None:
            found.append((here.group.price * (floor - here.floor_ticks), floor, index))
    return sorted(found)
