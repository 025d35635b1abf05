"""The fewest groups a few jobs need, by every way to cut them into sets: what a proof must equal.

Shares with the planner only the exact search for one group's shortest cycle.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import combinations

import solver
from solver.bounds import cycle_floor_ticks, cycle_limit_ticks
from solver.cpsat.cyclic import Effort, Ending, shortest_cycle

CYCLE_S = 20.0
"""Most seconds for one set; its cycle takes milliseconds."""


def fewest_groups(problem: solver.Problem) -> int | None:
    """Groups needed under common cycles; groups are alike and enough.

    None where a set stayed undecided.
    """
    jobs = problem.jobs
    possible = [
        frozenset(part)
        for size in range(1, len(jobs) + 1)
        for part in combinations(range(len(jobs)), size)
        if _fits(problem.groups[0], tuple(jobs[at] for at in part))
    ]
    decided = {part: has_cycle([jobs[at] for at in sorted(part)]) for part in possible}
    if None in decided.values():
        return None
    sets = [part for part, has_cycle in decided.items() if has_cycle]

    @cache
    def fewest(left: frozenset[int]) -> int:
        if not left:
            return 0
        first = min(left)
        return 1 + min(fewest(left - part) for part in sets if first in part and part <= left)

    return fewest(frozenset(range(len(jobs))))


def has_cycle(jobs: Sequence[solver.Job]) -> bool | None:
    """Whether jobs have a common cycle within their limits; None where that stayed undecided."""
    if len(jobs) == 1:
        return True
    if cycle_floor_ticks(jobs) > cycle_limit_ticks(jobs):
        return False
    answer = shortest_cycle("group", tuple(jobs), None, Effort(CYCLE_S))
    if answer.ending is Ending.INFEASIBLE:
        return False
    return None if answer.timeline is None else True


def _fits(group: solver.Group, jobs: tuple[solver.Job, ...]) -> bool:
    return (
        sum(job.memory_bytes for job in jobs) <= group.memory_bytes
        and (group.max_jobs is None or len(jobs) <= group.max_jobs)
        and cycle_floor_ticks(jobs) <= cycle_limit_ticks(jobs)
    )
