"""Where a job goes when it arrives: at once, on the groups that are least busy with it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from dataflow.phases import Phase
from plexrl.core.placement import Arrangement, Placement
from plexrl.errors import JobError
from plexrl.planning.facts import GroupFacts, PlannedJob
from plexrl.spelling import counted

Placed = Mapping[str, tuple[PlannedJob, Placement]]
"""Job → what is known of it, and where it is."""


def place(
    job: PlannedJob,
    groups: Iterable[GroupFacts],
    placed: Placed,
    busy_shares: Mapping[str, float],
) -> Placement:
    """Choose groups for a job.

    Parameters
    ----------
    job
        The job.
    groups
        Groups there are.
    placed
        All other jobs.
    busy_shares
        Group → sum over its jobs of the share of time they hold it when alone.

    Raises
    ------
    JobError
        No group has room, or the groups and the arrangement it asks for are not to be had.
    """
    rooms = {room.group: room for room in _rooms(_fitting(job, groups), placed)}
    _check_wishes(job, rooms)

    def load(room: _Room) -> tuple[float, int]:
        return busy_shares.get(room.group, 0.0), room.num_jobs

    home = _home(job, rooms, load)
    elsewhere = {key: group for key, group in job.pins.items() if key != "train"}
    if job.arrangement.is_split and "rollout" not in elsewhere:
        elsewhere["rollout"] = _rollout_group(job, home, rooms, load)
    return Placement.of(home, elsewhere)


def replace_lost(
    job: PlannedJob,
    was: Placement,
    groups: Iterable[GroupFacts],
    placed: Placed,
    busy_shares: Mapping[str, float],
) -> Placement:
    """Choose groups for a job that lost some: what is still there stays.

    An arrangement that the groups that are left cannot hold gives way: the job goes on.

    Raises
    ------
    JobError
        No group has room, or the job was told to run on a group that is gone.
    """
    known = {group.name: group for group in groups}
    pins = {"train": was.home, **dict(was.elsewhere)}
    kept = {key: group for key, group in pins.items() if group in known}
    stays = replace(job, pins={**kept, **job.pins})
    if len(known) < 2:
        stays = replace(stays, arrangement=Arrangement.ANY)
    return place(stays, known.values(), placed, busy_shares)


def check_room(
    job: PlannedJob, placement: Placement, groups: Iterable[GroupFacts], placed: Placed
) -> None:
    """Check that a job can be put on groups beside those that are there.

    Raises
    ------
    JobError
        One of them is too full, or private to one of the jobs.
    """
    is_private = job.arrangement is Arrangement.PRIVATE_ROLLOUT
    for room in _rooms((g for g in groups if g.name in placement.groups), placed):
        nbytes = memory_of(job, placement, room.group) or 0
        is_guest = room.group in placement.guests
        if not room.has_room(nbytes) or (is_private and is_guest and room.num_jobs):
            raise _no_room(job, nbytes, {room.group: room})


def has_room(
    job: PlannedJob, placement: Placement, groups: Iterable[GroupFacts], placed: Placed
) -> bool:
    """Whether `check_room` passes."""
    try:
        check_room(job, placement, groups, placed)
    except JobError:
        return False
    return True


def check_together(groups: Iterable[GroupFacts], placed: Placed) -> None:
    """Check that jobs can all be where they are placed, and want to be.

    Raises
    ------
    JobError
        A group is too small for its jobs, or a job's arrangement or the groups it asks for
        contradict its placement.
    """
    for job, placement in placed.values():
        _check_obeys(job, placement)
    for room in _rooms(groups, placed):
        if room.free_bytes < 0:
            raise JobError(
                f"jobs on group {room.group!r} need {-room.free_bytes} bytes more than it has; "
                "put fewer jobs there"
            )
        if room.places is not None and room.places < 0:
            raise JobError(
                f"group {room.group!r} has {counted(room.num_jobs, 'job')}, "
                f"{-room.places} more than it takes; put fewer jobs there"
            )
        if room.is_private and room.num_jobs > 1:
            raise JobError(
                f"group {room.group!r} is the private rollout group of a job, and has "
                f"{counted(room.num_jobs, 'job')}; put the others elsewhere"
            )


def _check_obeys(job: PlannedJob, placement: Placement) -> None:
    """Raise JobError where a placement contradicts what a job asks for."""
    is_apart = bool(placement.guests)
    rollouts = [key for key, _ in placement.elsewhere if key.rpartition(".")[2] == Phase.ROLLOUT]
    if job.arrangement.is_split and not rollouts:
        raise JobError(
            f"job {job.name!r} is arranged {job.arrangement}, and is on {placement} with its "
            "rollouts at home; put them on another group"
        )
    if job.arrangement is Arrangement.COLOCATED and is_apart:
        raise JobError(
            f"job {job.name!r} is arranged {job.arrangement}, and is on {placement}; put all of it "
            "on one group"
        )
    for key, group in job.pins.items():
        model, _, phase = key.rpartition(".")
        there = placement.home if phase == Phase.TRAIN else placement.group(model, phase)
        if there != group:
            raise JobError(
                f"job {job.name!r} wants {key} on group {group!r}, and has it on {there!r}; put it "
                "there, or submit the job without that wish"
            )


def memory_of(job: PlannedJob, placement: Placement, group: str) -> int | None:
    """Bytes a job takes on a group; None where it is not."""
    if group == placement.home:
        return job.memory_bytes
    return job.copy_bytes if group in placement.guests else None


@dataclass(frozen=True, slots=True)
class _Room:
    """What a group has left."""

    group: str
    free_bytes: int
    num_jobs: int
    places: int | None
    """Jobs that may still come; None: any number."""
    is_private: bool
    """Whether a job samples here and shares it with nobody."""

    def has_room(self, nbytes: int) -> bool:
        return (
            not self.is_private
            and nbytes <= self.free_bytes
            and (self.places is None or self.places > 0)
        )

    def __str__(self) -> str:
        if self.is_private:
            return f"{self.group!r} is the private rollout group of a job"
        places = "" if self.places is None else f" and {counted(self.places, 'place')}"
        beside = counted(self.num_jobs, "job")
        return f"{self.group!r} has {self.free_bytes} bytes{places} left beside {beside}"


_Load = Callable[[_Room], tuple[float, int]]


def _home(job: PlannedJob, rooms: Mapping[str, _Room], load: _Load) -> str:
    """Group where the job is trained."""
    wanted = job.pins.get("train")
    # Where rollouts are fixed the rest goes elsewhere, if the arrangement wants them apart.
    apart = job.pins.get("rollout") if job.arrangement.is_split else None
    able = [
        room
        for room in rooms.values()
        if room.has_room(job.memory_bytes) and wanted in {None, room.group} and room.group != apart
    ]
    if not able:
        raise _no_room(job, job.memory_bytes, rooms)
    if job.arrangement is Arrangement.PRIVATE_ROLLOUT:
        # Training pools are shared; what is empty is wanted for rollouts.
        return min(able, key=lambda room: (room.num_jobs == 0, load(room))).group
    return min(able, key=load).group


def _rollout_group(job: PlannedJob, home: str, rooms: Mapping[str, _Room], load: _Load) -> str:
    """Group where the job samples, apart from its home."""
    is_private = job.arrangement is Arrangement.PRIVATE_ROLLOUT
    able = [
        room
        for room in rooms.values()
        if room.group != home
        and room.has_room(job.copy_bytes)
        and not (is_private and room.num_jobs)
    ]
    if not able:
        raise _no_room(job, job.copy_bytes, rooms)
    return min(able, key=load).group


def _no_room(job: PlannedJob, nbytes: int, rooms: Mapping[str, _Room]) -> JobError:
    of_its_own = ""
    if job.arrangement.is_split:
        of_its_own = f", arranged {job.arrangement},"
    return JobError(
        f"job {job.name!r}{of_its_own} needs {nbytes} bytes and a place on one group; "
        f"{', '.join(str(room) for room in rooms.values())}: wait for a job to end, or add a group"
    )


def _check_wishes(job: PlannedJob, rooms: Mapping[str, _Room]) -> None:
    """Raise JobError if a group that is asked for is not there, or wishes contradict."""
    known = ", ".join(rooms)
    for key, group in job.pins.items():
        if group not in rooms:
            raise JobError(
                f"job {job.name!r} wants {key} on group {group!r}, which is not there or drains; "
                f"groups here: {known}"
            )
    fixed = {job.pins.get(key) for key in ("train", "rollout")} - {None}
    if job.arrangement.is_split and len(rooms) < 2:
        raise JobError(
            f"job {job.name!r} is arranged {job.arrangement}, which needs two groups; here is "
            f"{known}: add a group, or take 'any' or 'colocated'"
        )
    is_one = len(fixed) == 1 and {"train", "rollout"} <= set(job.pins)
    is_apart = len(set(job.pins.values())) > 1
    if (job.arrangement.is_split and is_one) or (
        job.arrangement is Arrangement.COLOCATED and is_apart
    ):
        raise JobError(
            f"job {job.name!r} is arranged {job.arrangement} but names the groups "
            f"{dict(job.pins)}; change one of the two"
        )


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


def _rooms(groups: Iterable[GroupFacts], placed: Placed) -> Iterable[_Room]:
    # One pass over the jobs, however many groups there are.
    here: dict[str, list[int]] = {}
    private: set[str] = set()
    for job, placement in placed.values():
        for group_name in placement.groups:
            here.setdefault(group_name, []).append(memory_of(job, placement, group_name) or 0)
        if job.arrangement is Arrangement.PRIVATE_ROLLOUT:
            private.update(placement.guests)
    for group in groups:
        sizes = here.get(group.name, [])
        yield _Room(
            group=group.name,
            free_bytes=group.memory_bytes - sum(sizes),
            num_jobs=len(sizes),
            places=None if group.max_jobs is None else group.max_jobs - len(sizes),
            is_private=group.name in private,
        )
