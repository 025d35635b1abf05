"""Empties groups of a plan where jobs may pass their loop several times: no solver, bounded effort.

The greedy planner knows common cycles. Where short jobs may pass several times beside long ones,
the jobs of the emptiest groups may find places elsewhere, and their groups are not needed.
"""

from __future__ import annotations

from collections.abc import Iterator

from solver.bounds import may_use
from solver.placement.passes import pass_counts, repeated_timeline
from solver.plan import Plan, Timeline
from solver.problem import Group, Job, Problem
from solver.timeline import plan_of

MAX_TIMELINES = 200
"""Timelines tried in all: a few milliseconds each."""


def emptied(problem: Problem, plan: Plan, most_passes: int) -> Plan | None:
    """The plan without groups whose jobs fit elsewhere; None if all are needed.

    The caller verifies it.
    """
    known = {timeline.group: timeline for timeline in plan.timelines}
    here: dict[str, tuple[Job, ...]] = {}
    for job in problem.jobs:
        group = plan.placement[job.id]
        here[group] = (*here.get(group, ()), job)
    effort = _Effort(problem, most_passes, MAX_TIMELINES)
    for gone in sorted(here, key=lambda group: (len(here[group]), -problem.group(group).price)):
        left = {group: jobs for group, jobs in here.items() if group != gone}
        changed = effort.placed(here[gone], left)
        if changed is not None:
            here = left
            del known[gone]
            known |= changed
    return None if len(known) == len(plan.timelines) else plan_of(problem, list(known.values()))


class _Effort:
    """What may still be tried."""

    def __init__(self, problem: Problem, most_passes: int, num_timelines: int) -> None:
        self._problem = problem
        self._most_passes = most_passes
        self._num_timelines = num_timelines

    def placed(
        self, homeless: tuple[Job, ...], here: dict[str, tuple[Job, ...]]
    ) -> dict[str, Timeline] | None:
        """New timelines of the groups that take the jobs, and `here` with them; None if not all."""
        before, changed = dict(here), {}
        for job in homeless:
            found = next(self._timelines(job, here), None)
            if found is None:
                here.clear()
                here.update(before)
                return None
            here[found.group] = (*here[found.group], job)
            changed[found.group] = found
        return changed

    def _timelines(self, job: Job, here: dict[str, tuple[Job, ...]]) -> Iterator[Timeline]:
        for name, jobs in here.items():
            group = self._problem.group(name)
            if not _has_room(group, jobs, job) or not any(
                pass_counts((*jobs, job), self._most_passes)
            ):
                continue
            if not self._num_timelines:
                return
            self._num_timelines -= 1
            found = repeated_timeline(name, (*jobs, job), self._most_passes)
            if found is not None:
                yield found


def _has_room(group: Group, jobs: tuple[Job, ...], job: Job) -> bool:
    return (
        may_use(job, group)
        and (group.max_jobs is None or len(jobs) < group.max_jobs)
        and sum(other.memory_bytes for other in (*jobs, job)) <= group.memory_bytes
        and not any(other.id in job.forbids or job.id in other.forbids for other in jobs)
    )
