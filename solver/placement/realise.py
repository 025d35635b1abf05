"""Turns chosen sets of jobs into a plan: a timeline for each set, and a group by name.

A set whose load and chain allow a cycle nearly always has a timeline that reaches it; where the
built one does not, whoever is given as `sharpen` may look harder.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from solver.bounds import cycle_floor_ticks, cycle_limit_ticks
from solver.objective import Objective
from solver.placement.kinds import GroupKind
from solver.placement.passes import repeated_timeline
from solver.plan import Plan, Timeline
from solver.problem import Job, Problem
from solver.timeline import greedy_timeline, plan_of

Sharpen = Callable[[str, tuple[Job, ...], Timeline], tuple[Timeline | None, int]]
"""From group, jobs and a timeline: a timeline within the limits, if one is found, and a number of
ticks that no cycle is shorter than (beyond all limits: there is none)."""


@dataclass(frozen=True, slots=True)
class Realised:
    """What is known about the timelines of a set of jobs."""

    timeline: Timeline | None
    """One within the limits; None if none is known."""
    least_ticks: int
    """No cycle is shorter."""


@dataclass(slots=True, eq=False)
class Realiser:
    """Timelines of the sets of jobs met so far; no set is looked at twice."""

    objective: Objective
    sharpen: Sharpen
    most_passes: int = 1
    """Most passes of a job in a cycle."""
    known: dict[tuple[str, ...], Realised] = field(default_factory=dict)

    def timeline(self, group: str, jobs: tuple[Job, ...]) -> Realised:
        """The best timeline known of a set on some group."""
        key = tuple(job.id for job in jobs)
        if key not in self.known:
            self.known[key] = self._realise(group, jobs)
        return self.known[key]

    def _realise(self, group: str, jobs: tuple[Job, ...]) -> Realised:
        built = greedy_timeline(group, jobs)
        floor, limit = cycle_floor_ticks(jobs), cycle_limit_ticks(jobs)
        if self.most_passes > 1 and built.cycle_ticks > limit:
            return Realised(repeated_timeline(group, jobs, self.most_passes), floor)
        is_length_free = self.objective in {Objective.GROUPS, Objective.COST}
        if built.cycle_ticks == floor or (is_length_free and built.cycle_ticks <= limit):
            return Realised(built, floor)
        sharper, least = self.sharpen(group, jobs, built)
        if sharper is None and built.cycle_ticks <= limit:
            sharper = built
        return Realised(sharper, max(floor, least))


def plan_of_sets(
    problem: Problem,
    kinds: Sequence[GroupKind],
    sets: Sequence[tuple[int, tuple[Job, ...]]],
    realiser: Realiser,
) -> Plan | None:
    """The plan of sets of jobs, each on a kind of group; None if one has no timeline.

    A set goes to the group of its kind from which moving its jobs would cost most.
    """
    names = _names(kinds, sets, problem.current or {})
    timelines = []
    for name, (_, jobs) in zip(names, sets, strict=True):
        found = realiser.timeline(name, jobs).timeline
        if found is None:
            return None
        timelines.append(replace(found, group=name))
    return plan_of(problem, timelines)


def _names(
    kinds: Sequence[GroupKind],
    sets: Sequence[tuple[int, tuple[Job, ...]]],
    current: Mapping[str, str],
) -> list[str]:
    free = [{group.id: None for group in kind.groups} for kind in kinds]
    stays: list[tuple[int, int, int, str]] = []
    for index, (_, jobs) in enumerate(sets):
        here: dict[str, list[int]] = {}
        for job in jobs:
            if job.id in current:
                here.setdefault(current[job.id], []).append(job.move_ticks)
        stays.extend((-sum(t), -len(t), index, group) for group, t in here.items())
    names: dict[int, str] = {}
    for _, _, index, group in sorted(stays):
        kind = sets[index][0]
        if index not in names and group in free[kind]:
            names[index] = group
            del free[kind][group]
    for index, (kind, _) in enumerate(sets):
        if index not in names:
            names[index] = next(iter(free[kind]))
            del free[kind][names[index]]
    return [names[index] for index in range(len(sets))]
