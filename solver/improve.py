"""Hands the groups of a placement to CP-SAT and takes back what passes the check."""

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
    tasks = _tasks(attempt, placed)
    budget_s = attempt.deadline - time.monotonic()
    if not tasks or budget_s < LEAST_SOLVE_S:
        attempt.bounds.extend(_timeline_bounds(attempt, placed, {}))
        return attempt.end(_unsolved(attempt, placed, has_tasks=bool(tasks)))
    report = guard.solve(
        list(tasks.values()),
        budget_s=budget_s,
        seed=seed,
        memory_bytes=memory_bytes,
        command=command,
    )
    groups = list(tasks)
    _adopt(attempt, placed, tasks, {groups[at]: found for at, found in report.timelines.items()})
    proved = {groups[at]: entry for at, entry in report.proved.items()}
    known = {
        group: entry.bound_ticks for group, entry in proved.items() if entry.ending in _BOUNDING
    }
    attempt.bounds.extend(_timeline_bounds(attempt, placed, known))
    if report.end is not ChildEnd.FINISHED:
        attempt.reasons.append(report.detail)
    return attempt.end(_status(attempt, tasks, report))


def _tasks(attempt: Attempt, placed: Placed) -> dict[str, Task]:
    """Group → its task; groups with one job are optimal as they are."""
    tasks = {}
    for group, jobs in placed.items():
        if len(jobs) < 2 or sum(len(job.ops) for job in jobs) > MAX_TIMELINE_OPS:
            continue
        free = tuple(replace(job, pool=None, pinned_group=None, forbids=()) for job in jobs)
        problem = Problem((attempt.problem.group(group),), free)
        tasks[group] = Task(problem, _hint(attempt, problem))
    return tasks


def _hint(attempt: Attempt, part: Problem) -> Timeline | None:
    """The shortest valid timeline at hand for the jobs of one group."""
    group = part.groups[0].id
    known = None if attempt.best is None else attempt.best.timeline(group)
    if known is not None and max(known.passes.values()) == 1 and _is_valid(part, known):
        return known
    built = greedy_timeline(group, part.jobs)
    return built if built.cycle_ticks <= cycle_limit_ticks(part.jobs) else None


def _is_valid(part: Problem, timeline: Timeline) -> bool:
    try:
        return verify(part, plan_of(part, [timeline])).is_valid
    except (PlanError, KeyError):
        return False


def _adopt(
    attempt: Attempt, placed: Placed, tasks: Mapping[str, Task], found: Mapping[str, Timeline]
) -> None:
    """Offer the plan of the solver's timelines that pass the check and the hints elsewhere."""
    timelines = []
    source = Source.GREEDY
    for group, jobs in placed.items():
        if group not in tasks:
            timelines.append(greedy_timeline(group, jobs))
            continue
        task = tasks[group]
        timeline = found.get(group)
        if timeline is not None and not _is_valid(task.problem, timeline):
            attempt.reasons.append(
                f"the solver's timeline of group {group} failed the check and is not used"
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
    attempt: Attempt, placed: Placed, known: Mapping[str, int]
) -> tuple[Bound, ...]:
    """What is proven about the timelines of this placement, if it is that of the best plan."""
    best = attempt.best
    if best is None or any(
        best.placement[job.id] != group for group, jobs in placed.items() for job in jobs
    ):
        return ()
    ticks = sum(
        attempt.problem.group(group).price * max(known.get(group, 0), cycle_floor_ticks(jobs))
        for group, jobs in placed.items()
    )
    is_only = len(attempt.problem.groups) == 1
    bound_class = BoundClass.COMMON_CYCLE if is_only else BoundClass.RESTRICTED
    return (Bound(ticks, bound_class, Proof.SEARCH),)


def _unsolved(attempt: Attempt, placed: Placed, *, has_tasks: bool) -> Status:
    """The status when the solver was not started."""
    if has_tasks:
        if attempt.best is None:
            attempt.reasons.append("no greedy timeline keeps the slowdown limits; allow more time")
        return Status.OUT_OF_TIME
    if attempt.best is not None and all(len(jobs) < 2 for jobs in placed.values()):
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
        return Status.INFEASIBLE if len(attempt.problem.groups) == 1 else Status.UNKNOWN
    if report.end is ChildEnd.KILLED:
        return Status.OUT_OF_TIME
    if report.end is not ChildEnd.FINISHED:
        return Status.UNKNOWN
    is_done = len(endings) == len(tasks) and set(endings) == {"optimal"}
    return Status.FEASIBLE if is_done else Status.OUT_OF_TIME
