"""The plan in force for a problem that changed a little: only what the change touches is replanned.

Groups whose jobs are all still there and still fit keep their timelines; jobs that came, or whose
loop changed, are put where they add least.
"""

from __future__ import annotations

from solver.errors import PlanError
from solver.placement.bins import Bins
from solver.placement.greedy import insert
from solver.plan import Plan, Timeline
from solver.problem import Group, Job, Problem
from solver.timeline import greedy_timeline, keeps_limits, plan_of
from solver.verify import verify


def replan(problem: Problem, previous: Plan) -> Plan | None:
    """The previous plan with as few changes as its new problem needs; None if that fails.

    The caller verifies it.
    """
    bins = Bins(problem)
    index_of = {group.id: index for index, group in enumerate(problem.groups)}
    kept: dict[int, Timeline] = {}
    homeless = {job.id: job for job in problem.jobs}
    for timeline in previous.timelines:
        index = index_of.get(timeline.group)
        if index is None:
            continue
        stay = [homeless[name] for name in _names(timeline) if name in homeless]
        if not stay:
            continue
        group = problem.groups[index]
        if _still_holds(group, stay, timeline):
            kept[index] = timeline
        elif not _may_stay(group, stay):
            continue
        for job in stay:
            bins.put(job, index)
            del homeless[job.id]
    for job in sorted(homeless.values(), key=lambda job: -job.alone_ticks):
        touched = insert(bins, job)
        if touched is None:
            return None
        kept.pop(touched, None)
    timelines = [
        kept.get(index) or greedy_timeline(group.id, jobs)
        for index, (group, jobs) in enumerate(zip(problem.groups, bins.jobs, strict=True))
        if jobs
    ]
    return plan_of(problem, timelines)


def _names(timeline: Timeline) -> list[str]:
    return list(dict.fromkeys(timing.job for timing in timeline.timings))


def _still_holds(group: Group, jobs: list[Job], timeline: Timeline) -> bool:
    if len(jobs) < len(_names(timeline)):
        return False
    part = _part(group, jobs)
    try:
        return part is not None and verify(part, plan_of(part, [timeline])).is_valid
    except (PlanError, KeyError):
        return False


def _may_stay(group: Group, jobs: list[Job]) -> bool:
    """Whether jobs that were together may stay so with another timeline."""
    part = _part(group, jobs)
    if part is None or not keeps_limits(jobs):
        return False
    return verify(part, plan_of(part, [greedy_timeline(group.id, jobs)])).is_valid


def _part(group: Group, jobs: list[Job]) -> Problem | None:
    """The jobs of one group as a problem; None if they name what is not in it."""
    ids = {job.id for job in jobs}
    is_whole = all(
        job.pinned_group in {None, group.id}
        and job.pool in {None, group.pool}
        and not ids.intersection(job.forbids)
        for job in jobs
    )
    if not is_whole:
        return None
    free = tuple(
        Job(job.id, job.ops, job.memory_bytes, job.slowdown_limit_permille, job.weight)
        for job in jobs
    )
    return Problem((group,), free)
