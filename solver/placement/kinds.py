"""Groups that nothing tells apart, taken together: counts instead of one variable a group."""

from __future__ import annotations

from dataclasses import dataclass

from solver.problem import Group, Problem


@dataclass(frozen=True, slots=True)
class GroupKind:
    """Groups of one memory, pool, price and job limit that no job names."""

    groups: tuple[Group, ...]
    """The groups, in the order of the problem."""

    @property
    def example(self) -> Group:
        """One of the groups; the others differ by name only."""
        return self.groups[0]

    @property
    def count(self) -> int:
        """How many there are."""
        return len(self.groups)


def group_kinds(problem: Problem) -> tuple[GroupKind, ...]:
    """The kinds of groups of a problem, in the order of their first group.

    A group that a job is pinned to is a kind of its own.
    """
    pinned = {job.pinned_group for job in problem.jobs}
    kinds: dict[tuple[object, ...], list[Group]] = {}
    for group in problem.groups:
        name = group.id if group.id in pinned else None
        key = (group.memory_bytes, group.pool, group.max_jobs, group.price, name)
        kinds.setdefault(key, []).append(group)
    return tuple(GroupKind(tuple(groups)) for groups in kinds.values())
