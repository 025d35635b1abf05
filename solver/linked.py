"""Groups that jobs link to each other, being on several at once: they repeat one cycle together.

While they are planned, one timeline has the ops of all groups of such a set; a plan has one for
each group.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import networkx as nx

from solver.plan import Plan, Timeline, Timing
from solver.problem import Group, Job, Problem


@dataclass(frozen=True, slots=True)
class Circle:
    """Groups that must repeat one cycle together, mostly a single one, and the jobs on them."""

    groups: tuple[Group, ...]
    jobs: tuple[Job, ...]

    @property
    def name(self) -> str:
        """Its groups, as the name of the timeline they have in common."""
        return name_of(group.id for group in self.groups)

    @property
    def price(self) -> int:
        """Of all its groups."""
        return sum(group.price for group in self.groups)


Places = tuple[str | None, ...]
"""Groups that are held at once; None: the only one there is."""


def name_of(groups: Iterable[str]) -> str:
    """Name of the timeline that groups have in common."""
    return "+".join(groups)


def circles(problem: Problem, placed: Mapping[str, Sequence[Job]]) -> tuple[Circle, ...]:
    """The groups of a placement, those together that jobs link.

    Parameters
    ----------
    placed
        Group → jobs placed on it.
    """
    # Every group is at home with itself, so that one alone is in the graph too.
    graph = nx.Graph(
        (group, place) for group, jobs in placed.items() for place in (group, *_places(group, jobs))
    )
    ranks = {group.id: rank for rank, group in enumerate(problem.groups)}
    found = [sorted(part, key=ranks.__getitem__) for part in nx.connected_components(graph)]
    return tuple(_circle(problem, names, placed) for names in found)


def _places(home: str, jobs: Iterable[Job]) -> Iterator[str]:
    """Groups that the ops of jobs with this home hold."""
    for job in jobs:
        for op in job.ops:
            yield op.group or home
            yield from op.also


def _circle(problem: Problem, names: list[str], placed: Mapping[str, Sequence[Job]]) -> Circle:
    return Circle(
        groups=tuple(problem.group(name) for name in names),
        jobs=tuple(job for name in names for job in placed.get(name, ())),
    )


def places_of(jobs: Sequence[Job]) -> dict[tuple[str, str], Places]:
    """(job, op) → groups it holds, of jobs that repeat one cycle together."""
    is_linked = any(job.is_spread for job in jobs)
    return {
        (job.id, op.name): job.groups_of(op) if is_linked else (None,)
        for job in jobs
        for op in job.ops
    }


def parted(problem: Problem, timeline: Timeline) -> tuple[Timeline, ...]:
    """Timelines of single groups that make up one of several."""
    if not problem.is_linked:
        return (timeline,)
    places = places_of(problem.jobs)
    timings: dict[str, list[Timing]] = {}
    for timing in timeline.timings:
        for group in places.get((timing.job, timing.op), (timeline.group,)):
            timings.setdefault(group or timeline.group, []).append(timing)
    return tuple(
        Timeline(group, timeline.cycle_ticks, tuple(here)) for group, here in timings.items()
    )


def joined(timelines: Sequence[Timeline]) -> Timeline:
    """One timeline of groups that have a cycle in common."""
    return Timeline(
        name_of(timeline.group for timeline in timelines),
        timelines[0].cycle_ticks,
        # What holds several groups is in the timeline of each.
        tuple(dict.fromkeys(timing for timeline in timelines for timing in timeline.timings)),
    )


def together(problem: Problem, plan: Plan) -> Iterator[tuple[Timeline, ...]]:
    """Timelines of a plan, those together that have one cycle."""
    if not problem.is_linked:
        yield from ((timeline,) for timeline in plan.timelines)
        return
    placed: dict[str, list[Job]] = {}
    for job in problem.jobs:
        placed.setdefault(str(job.pinned_group), []).append(job)
    left = {line.group: line for line in plan.timelines}
    for circle in circles(problem, placed):
        names = [group.id for group in circle.groups if group.id in left]
        if names:
            yield tuple(left.pop(name) for name in names)
    # What serves nobody is refused like any other line of strangers.
    yield from ((line,) for line in left.values())
