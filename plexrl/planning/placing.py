"""Where a job goes when it arrives: at once, on the group that is least busy with it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

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
    known = sorted(groups, key=lambda group: group.name)
    if not known:
        raise JobError(f"job {job.name!r} cannot be placed: there is no group; add one")
    largest = max(known, key=lambda group: group.memory_bytes)
    if job.memory_bytes > largest.memory_bytes:
        raise JobError(
            f"job {job.name!r} needs {job.memory_bytes} bytes on one group; the largest group, "
            f"{largest.name!r}, has {largest.memory_bytes}: use a smaller model or a larger group"
        )
    free_bytes = {group.name: group.memory_bytes for group in known}
    num_jobs = dict.fromkeys(free_bytes, 0)
    for group_name, memory_bytes in placed.values():
        if group_name in free_bytes:
            free_bytes[group_name] -= memory_bytes
            num_jobs[group_name] += 1
    able = [
        group.name
        for group in known
        if job.memory_bytes <= free_bytes[group.name]
        and (group.max_jobs is None or num_jobs[group.name] < group.max_jobs)
    ]
    if not able:
        raise JobError(
            f"job {job.name!r} needs {job.memory_bytes} bytes and a place on one group; "
            + ", ".join(
                f"{group.name!r} has {free_bytes[group.name]} bytes left and {num_jobs[group.name]}"
                f" of {'any number of' if group.max_jobs is None else group.max_jobs} jobs"
                for group in known
            )
            + ": wait for a job to end, or add a group"
        )
    return min(able, key=lambda name: (busy_shares.get(name, 0.0), num_jobs[name], name))
