"""Finds the processes of a cluster at work, and the moments at which they are killed."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import psutil

import plexrl
from plexrl.core.status import ClusterStatus, GroupStatus, JobStatus
from solver.trace import Outcome

POLL_S = 0.004
"""Between looks: a phase of these jobs takes tens of milliseconds."""
MOMENT_TIMEOUT_S = 10.0
"""A moment that does not come in this time is not waited for any longer."""

ENGINE = "plexrl.engines.process"
SOLVER = "solver.cpsat.child"
PLANNER = "plexrl.planning.child"
VERIFIER = "leave_with_parent"
TOOL = "RLIMIT_FSIZE"
"""What the command line of each kind of child has in it."""


class Moment(StrEnum):
    """When a process is killed."""

    ANY = "any"
    """After a random pause."""
    ROLLOUT = "rollout"
    TRAIN = "train"
    COMMIT = "commit"
    """While a version is being written to the store."""
    BETWEEN = "between"
    """While no function holds the group."""
    PREFETCH = "prefetch"
    """While a version is being read from the store."""
    ATTACH = "attach"
    """While the models of a job are being opened."""
    YIELDED = "yielded"
    """While a rollout that gave the group up in the middle waits for it."""


@dataclass(frozen=True, slots=True)
class Scene:
    """What can be looked at while waiting for a moment."""

    cluster: plexrl.LocalCluster
    store: Path
    group: str
    """Group that is about to lose something."""
    worker_pid: int
    """Process of its worker."""

    def is_now(self, moment: Moment) -> bool:
        """Whether this is the moment."""
        match moment:
            case Moment.ANY:
                return True
            case Moment.COMMIT:
                return is_half_written(self.store)
            case Moment.PREFETCH:
                return _reads_chunks(self.worker_pid)
            case Moment.YIELDED:
                return bool(self.yielded())
        held = group_status(self.cluster.status(), self.group).function
        match moment:
            case Moment.BETWEEN:
                return not held
            case Moment.ATTACH:
                return ".sync." in held
        return f".{moment}." in held

    def yielded(self) -> list[str]:
        """Functions that gave the group up and have not had it since."""
        leases = [lease for lease in self.cluster.trace().leases if lease.group == self.group]
        held = group_status(self.cluster.status(), self.group)
        last = {lease.id: lease for lease in leases}
        live = active(self.cluster.status())
        return [
            lease.id
            for lease in last.values()
            if lease.outcome is Outcome.YIELDED
            and lease.job in live
            and lease.iteration == live[lease.job].iteration
            and (held.holder, held.function) != (lease.job, lease.op)
        ]

    def wait(self, moment: Moment) -> bool:
        """Wait for the moment; returns whether it came."""
        deadline_s = time.monotonic() + MOMENT_TIMEOUT_S
        while not self.is_now(moment):
            if time.monotonic() > deadline_s:
                return False
            time.sleep(POLL_S)
        return True


def is_half_written(store: Path) -> bool:
    """Whether a version is being written right now, or was when its writer died."""
    return any(
        not (version / "zarr.json").exists() for version in (store / "states").glob("*/*/v*")
    )


def _reads_chunks(pid: int) -> bool:
    folder = Path(f"/proc/{pid}/fd")
    try:
        links = [str(entry.readlink()) for entry in folder.iterdir()]
    except OSError:
        return False
    return any("/c/" in link for link in links)


def group_status(status: ClusterStatus, name: str) -> GroupStatus:
    """Status of one group; an idle one while it has no worker."""
    for group in status.groups:
        if group.name == name:
            return group
    return GroupStatus(name, "", "", "", 0.0, 0.0, 0, (), 0, 0, {})


def has_group(job: JobStatus, group: str) -> bool:
    """Whether a job is placed on a group, alone or beside others."""
    return group in job.group.split("+")


def active(status: ClusterStatus) -> Mapping[str, JobStatus]:
    """Jobs that have not ended, by name."""
    return {job.name: job for job in status.jobs if not job.state.is_terminal}


def pid_of(cluster: plexrl.LocalCluster, worker: str) -> int:
    """Process of a worker."""
    (pid,) = cluster.client.run(os.getpid, workers=[worker]).values()
    return int(pid)


def children(pid: int, word: str) -> list[psutil.Process]:
    """Children of a process whose command line has this word."""
    # Not by psutil, which reads every process of the machine to find a few.
    listed = (path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/children"))
    processes = []
    for child in {int(number) for text in listed for number in text.split()}:
        with suppress(psutil.Error):
            processes.append(psutil.Process(child))
    return list(_with_word(processes, word))


def _with_word(processes: list[psutil.Process], word: str) -> Iterator[psutil.Process]:
    for process in processes:
        try:
            if any(word in part for part in process.cmdline()):
                yield process
        except psutil.Error:
            continue


def soon(find: Callable[[], list[psutil.Process]], timeout_s: float) -> psutil.Process | None:
    """First process that shows up; None if none does in time."""
    deadline_s = time.monotonic() + timeout_s
    while time.monotonic() < deadline_s:
        try:
            found = find()
        except (psutil.Error, OSError):
            found = []
        if found:
            return found[0]
        time.sleep(POLL_S)
    return None
