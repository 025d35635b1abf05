"""Hands the groups of a placement to CP-SAT and takes back what passes the check.

Groups that jobs link are one task: they repeat one cycle together.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

from solver.attempt import Attempt
from solver.bounds import Bound, BoundClass, Proof, cycle_floor_ticks, cycle_limit_ticks
from solver.cpsat import guard
from solver.cpsat.guard import Report
from solver.cpsat.leash import ChildEnd
from solver.cpsat.messages import Task
from solver.errors import PlanError
from solver.linked import Circle, circles, joined
from solver.placement.greedy import Placed
from solver.plan import Timeline
from solver.problem import Problem
from solver.result import Result, Source, Status
from solver.timeline import greedy_timeline, plan_of
from solver.verify import verify

MAX_TIMELINE_OPS = 200
"""Groups with more ops keep their greedy timeline: the exact model would not end in time."""
LEAST_SOLVE_S = 0.5
"""With less of the budget left the solver is not started: loading it takes this long."""

_BOUNDING = frozenset({"optimal", "feasible", "unknown"})


def improve(
    attempt: Attempt, placed: Placed, seed: int, memory_bytes: int, command: Sequence[str]
) -> Result:
    """Shorten the cycles of a placement in the time that is left, and end the attempt."""
    found = circles(attempt.problem, placed)
    tasks = _tasks(attempt, found)
    budget_s = attempt.deadline - time.monotonic()
    if not tasks or budget_s < LEAST_SOLVE_S:
        attempt.bounds.extend(_timeline_bounds(attempt, placed, found, {}))
        return attempt.end(_unsolved(attempt, found, has_tasks=bool(tasks)))
    report = guard.solve(
        list(tasks.values()),
        budget_s=budget_s,
        seed=seed,
        memory_bytes=memory_bytes,
        command=command,
    )
    names = list(tasks)
    _adopt(attempt, found, tasks, {names[at]: better for at, better in report.timelines.items()})
    proved = {names[at]: entry for at, entry in report.proved.items()}
    known = {name: entry.bound_ticks for name, entry in proved.items() if entry.ending in _BOUNDING}
    attempt.bounds.extend(_timeline_bounds(attempt, placed, found, known))
    if report.end is not ChildEnd.FINISHED:
        attempt.reasons.append(report.detail)
    return attempt.end(_status(attempt, tasks, report))


def _tasks(attempt: Attempt, found: Sequence[Circle]) -> dict[str, Task]:
    """Name of a circle → its task; those with one job are optimal as they are."""
    tasks = {}
    for circle in found:
        if len(circle.jobs) < 2 or _is_large(circle):
            continue
        is_single = len(circle.groups) == 1
        free = tuple(
            replace(
                job,
                pool=None,
                pinned_group=None if is_single else job.pinned_group,
                forbids=(),
            )
            for job in circle.jobs
        )
        problem = Problem(circle.groups, free)
        tasks[circle.name] = Task(problem, _hint(attempt, circle, problem))
    return tasks


def _is_large(circle: Circle) -> bool:
    return sum(len(job.ops) for job in circle.jobs) > MAX_TIMELINE_OPS


def _hint(attempt: Attempt, circle: Circle, part: Problem) -> Timeline | None:
    """The shortest valid timeline at hand for the jobs of a circle."""
    known = _known(attempt, circle)
    if known is not None and max(known.passes.values()) == 1 and _is_valid(part, known):
        return known
    built = greedy_timeline(circle.name, part.jobs)
    return built if built.cycle_ticks <= cycle_limit_ticks(part.jobs) else None


def _known(attempt: Attempt, circle: Circle) -> Timeline | None:
    """The timeline that the best plan has for a circle."""
    if attempt.best is None:
        return None
    here = [attempt.best.timeline(group.id) for group in circle.groups]
    lines = [timeline for timeline in here if timeline is not None]
    return joined(lines) if len(lines) == len(here) else None


def _is_valid(part: Problem, timeline: Timeline) -> bool:
    try:
        return verify(part, plan_of(part, [timeline])).is_valid
    except (PlanError, KeyError):
        return False


def _adopt(
    attempt: Attempt,
    every: Sequence[Circle],
    tasks: Mapping[str, Task],
    found: Mapping[str, Timeline],
) -> None:
    """Offer the plan of the solver's timelines that pass the check and the hints elsewhere."""
    timelines = []
    source = Source.GREEDY
    for circle in every:
        if circle.name not in tasks:
            timelines.append(greedy_timeline(circle.name, circle.jobs))
            continue
        task = tasks[circle.name]
        timeline = found.get(circle.name)
        if timeline is not None and not _is_valid(task.problem, timeline):
            attempt.reasons.append(
                f"the solver's timeline of group {circle.name} failed the check and is not used"
            )
            timeline = None
        if timeline is not None:
            source = Source.CPSAT
        elif task.hint is not None:
            timeline = task.hint
        else:
            return
        timelines.append(timeline)
    attempt.offer(plan_of(attempt.problem, timelines), source)


def _timeline_bounds(
    attempt: Attempt, placed: Placed, found: Sequence[Circle], known: Mapping[str, int]
) -> tuple[Bound, ...]:
    """What is proven about the timelines of this placement, if it is that of the best plan."""
    best = attempt.best
    if best is None or any(
        best.placement[job.id] != group for group, jobs in placed.items() for job in jobs
    ):
        return ()
    ticks = sum(
        circle.price * max(known.get(circle.name, 0), cycle_floor_ticks(circle.jobs))
        for circle in found
    )
    # Where jobs link groups, each is pinned: there is no other placement.
    is_only = len(attempt.problem.groups) == 1 or attempt.problem.is_linked
    bound_class = BoundClass.COMMON_CYCLE if is_only else BoundClass.RESTRICTED
    return (Bound(ticks, bound_class, Proof.SEARCH),)


def _unsolved(attempt: Attempt, found: Sequence[Circle], *, has_tasks: bool) -> Status:
    """The status when the solver was not started."""
    if has_tasks:
        if attempt.best is None:
            attempt.reasons.append("no greedy timeline keeps the slowdown limits; allow more time")
        return Status.OUT_OF_TIME
    if attempt.best is not None and all(len(circle.jobs) < 2 for circle in found):
        return Status.FEASIBLE
    attempt.reasons.append(f"a group has over {MAX_TIMELINE_OPS} ops; its timeline stays greedy")
    return Status.UNKNOWN if attempt.best is None else Status.FEASIBLE


def _status(attempt: Attempt, tasks: Mapping[str, Task], report: Report) -> Status:
    """The status the solver earned; a proof may still lift it to optimal."""
    endings = [entry.ending for entry in report.proved.values()]
    groups = list(tasks)
    excluded = [groups[at] for at, entry in report.proved.items() if entry.ending == "infeasible"]
    for group in excluded:
        if tasks[group].hint is not None:
            attempt.reasons.append(f"the solver denied a checked timeline of group {group}")
    if attempt.best is None and excluded:
        names = ", ".join(job.id for job in tasks[excluded[0]].problem.jobs)
        attempt.reasons.append(
            f"jobs {names} have no common cycle on group {excluded[0]} within their slowdown "
            "limits, though its load would allow one"
        )
        is_only = len(attempt.problem.groups) == 1 or attempt.problem.is_linked
        return Status.INFEASIBLE if is_only else Status.UNKNOWN
    if report.end is ChildEnd.KILLED:
        return Status.OUT_OF_TIME
    if report.end is not ChildEnd.FINISHED:
        return Status.UNKNOWN
    is_done = len(endings) == len(tasks) and set(endings) == {"optimal"}
    return Status.FEASIBLE if is_done else Status.OUT_OF_TIME
