"""Every placement of a few jobs, by branch and bound: exact where best fit only hopes.

A placement is valued by the cycle floors of its groups. The floor is reached by a timeline
nearly always, so the cheapest placement is known before any timeline is built, and its value
bounds every common-cycle plan from below.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from solver.objective import MILLION
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
    """Its price × cycle floor, summed over groups, with what moves cost."""
    is_complete: bool
    """Whether nothing was left out: then nothing is cheaper, or nothing exists at all."""


@dataclass(slots=True)
class _State:
    jobs: list[Job]
    current: Mapping[str, str]
    bins: list[Bin]
    kinds: list[tuple[object, ...]]
    """Per group what tells it from others; of idle groups of one kind only the first is tried."""
    max_nodes: int
    horizon_ticks: int
    moved: dict[str, int] = field(default_factory=dict)
    """Group → ticks it loses to jobs that move there."""
    nodes: int = 0
    best: Placed | None = None
    best_cost: int | None = None
    """In millionths of a priced group-tick."""


def search_placement(problem: Problem, *, max_nodes: int = MAX_NODES) -> Search:
    """The placement with the least sum of price × cycle floor, as far as `max_nodes` reach.

    Every requirement but the existence of a timeline is kept; deterministic. Among equals jobs
    rather stay where they are.
    """
    if len(problem.groups) == 1:
        return _only_choice(problem)
    current = problem.current or {}
    state = _State(
        jobs=sorted(
            problem.jobs,
            key=lambda job: (job.pinned_group is None, job.id not in current, -job.alone_ticks),
        ),
        current=current,
        bins=[Bin.empty(group) for group in problem.groups],
        kinds=_kinds(problem),
        max_nodes=max_nodes,
        horizon_ticks=problem.horizon_ticks,
    )
    _extend(state, 0, 0)
    floor_ticks = None if state.best_cost is None else state.best_cost // MILLION
    return Search(state.best, floor_ticks, state.nodes <= max_nodes)


def _only_choice(problem: Problem) -> Search:
    here = Bin.empty(problem.groups[0])
    for job in problem.jobs:
        floor = here.floor_with(job)
        if floor is None:
            return Search(None, None, is_complete=True)
        here = here.with_job(job, floor)
    # All jobs are on the only group, or come to it from nowhere: nothing moves.
    return Search({here.group.id: here.jobs}, here.group.price * here.floor_ticks, is_complete=True)


def _kinds(problem: Problem) -> list[tuple[object, ...]]:
    """A group that some job names is unlike all others."""
    named = {*(problem.current or {}).values(), *(job.pinned_group for job in problem.jobs)}
    return [
        (
            group.memory_bytes,
            group.pool,
            group.max_jobs,
            group.price,
            group.id if group.id in named else None,
        )
        for group in problem.groups
    ]


def _extend(state: _State, depth: int, cost: int) -> None:
    if depth == len(state.jobs):
        state.best_cost = cost
        state.best = {here.group.id: here.jobs for here in state.bins if here.jobs}
        return
    job = state.jobs[depth]
    for added, floor, index in _branches(state, job):
        if state.best_cost is not None and cost + added >= state.best_cost:
            return
        state.nodes += 1
        if state.nodes > state.max_nodes:
            return
        here = state.bins[index]
        moved = state.moved.get(here.group.id, 0)
        state.bins[index] = here.with_job(job, floor)
        state.moved[here.group.id] = moved + _move_ticks(state, job, here)
        _extend(state, depth + 1, cost + added)
        state.bins[index], state.moved[here.group.id] = here, moved


def _branches(state: _State, job: Job) -> list[tuple[int, int, int]]:
    """``(added cost, cycle floor, index of the group)``, cheapest first."""
    found = []
    idle: set[tuple[object, ...]] = set()
    stays = state.current.get(job.id)
    for index, here in enumerate(state.bins):
        if not here.jobs:
            if state.kinds[index] in idle:
                continue
            idle.add(state.kinds[index])
        floor = here.floor_with(job)
        if floor is not None:
            moved = state.moved.get(here.group.id, 0)
            added = _cost(state, here, floor, moved + _move_ticks(state, job, here))
            added -= _cost(state, here, here.floor_ticks, moved)
            found.append((added, here.group.id != stays, floor, index))
    return [(added, floor, index) for added, _, floor, index in sorted(found)]


def _cost(state: _State, here: Bin, floor_ticks: int, moved_ticks: int) -> int:
    """What a group adds to the value, in millionths."""
    lost = MILLION * moved_ticks // state.horizon_ticks
    return here.group.price * floor_ticks * (MILLION + lost)


def _move_ticks(state: _State, job: Job, here: Bin) -> int:
    return job.move_ticks if state.current.get(job.id, here.group.id) != here.group.id else 0
