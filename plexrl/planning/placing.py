"""Where a job goes when it arrives: at once, on the group that is least busy with it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from plexrl.errors import JobError
from plexrl.planning.facts import GroupFacts, PlannedJob


def place(
    job: PlannedJob,
    groups: Iterable[GroupFacts],
    placed: Mapping[str, tuple[str, int]],
    busy_shares: Mapping[str, float],
) -> str:
    """Choose a group for a job.

    Parameters
    ----------
    job
        The job.
    groups
        Groups there are.
    placed
        Job → its group and its bytes, for all others.
    busy_shares
        Group → sum over its jobs of the share of time they hold it when alone.

    Raises
    ------
    JobError
        No group has room.
    """
    known = _fitting(job, groups)
    here: dict[str, list[int]] = {}
    for group_name, memory_bytes in placed.values():
        here.setdefault(group_name, []).append(memory_bytes)
    rooms = [_room(group, here.get(group.name, [])) for group in known]
    able = [
        room
        for room in rooms
        if job.memory_bytes <= room.free_bytes and (room.places is None or room.places > 0)
    ]
    if not able:
        raise JobError(
            f"job {job.name!r} needs {job.memory_bytes} bytes and a place on one group; "
            f"{', '.join(str(room) for room in rooms)}: wait for a job to end, or add a group"
        )
    return min(able, key=lambda room: (busy_shares.get(room.group, 0.0), room.num_jobs)).group


def _fitting(job: PlannedJob, groups: Iterable[GroupFacts]) -> list[GroupFacts]:
    """Groups by name; raises JobError if the job fits none even when it is empty."""
    known = sorted(groups, key=lambda group: group.name)
    if not known:
        raise JobError(f"job {job.name!r} cannot be placed: there is no group; add one")
    largest = max(known, key=lambda group: group.memory_bytes)
    if job.memory_bytes > largest.memory_bytes:
        raise JobError(
            f"job {job.name!r} needs {job.memory_bytes} bytes on one group; the largest group, "
            f"{largest.name!r}, has {largest.memory_bytes}: use a smaller model or a larger group"
        )
    return known


@dataclass(frozen=True, slots=True)
class _Room:
    """What a group has left."""

    group: str
    free_bytes: int
    num_jobs: int
    places: int | None
    """Jobs that may still come; None: any number."""

    def __str__(self) -> str:
        places = "" if self.places is None else f" and {self.places} places"
        return (
            f"{self.group!r} has {self.free_bytes} bytes{places} left beside {self.num_jobs} jobs"
        )


def _room(group: GroupFacts, here: Sequence[int]) -> _Room:
    """What is left beside jobs of these sizes."""
    return _Room(
        group=group.name,
        free_bytes=group.memory_bytes - sum(here),
        num_jobs=len(here),
        places=None if group.max_jobs is None else group.max_jobs - len(here),
    )
