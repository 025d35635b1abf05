"""The page of savings: group-hours used, against those of the same work with groups for each job.

How long a job's iteration takes alone is estimated: as measured, without its waits for a group and
without the swaps that sharing costs. `plexrl run --compare` measures it instead.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from plexrl.core.status import ClusterStatus, JobStatus
from plexrl.dashboard.tally import JobTally, Tally
from solver.saving import Usage, saving

BASELINE = "each job with groups of its own, given back when it ends"
"""What the saving is measured against."""


@dataclass(frozen=True, slots=True)
class SavingLine:
    """One job."""

    job: str
    num_iterations: int
    work_s: float
    """Seconds they take alone, estimated."""
    dedicated_s: float
    """Group-seconds its iterations so far take alone, on as many groups as it is on, estimated."""
    held_s: float
    """Group-seconds under its leases."""

    @property
    def idle_share(self) -> float:
        """Share of its dedicated groups that others could use; 0 if it never waits."""
        return max(0.0, 1 - self.held_s / self.dedicated_s) if self.dedicated_s > 0 else 0.0


@dataclass(frozen=True, slots=True)
class SavingTotal:
    """All jobs together."""

    reserved_s: float
    """Group-seconds from the first job's start on, idle time included."""
    dedicated_s: float
    held_s: float
    saving: float | None
    """See `solver.saving`; None before the first iteration."""

    @property
    def busy_share(self) -> float:
        """Share of the reserved time under a lease."""
        return min(1.0, self.held_s / self.reserved_s) if self.reserved_s > 0 else 0.0


def saving_lines(status: ClusterStatus, tally: Tally) -> list[SavingLine]:
    """One line per job that committed an iteration, most dedicated group-time first."""
    lines = [
        _line(job, tally.jobs[job.name])
        for job in status.jobs
        if job.name in tally.jobs and job.iteration_s is not None
    ]
    return sorted(lines, key=lambda line: -line.dedicated_s)


def saving_total(status: ClusterStatus, lines: Iterable[SavingLine]) -> SavingTotal:
    """The whole cluster: reserved while at least one job was active."""
    lines = list(lines)
    reserved_s = len(status.groups) * active_s(status)
    dedicated_s = sum(line.dedicated_s for line in lines)
    work_s = sum(line.work_s for line in lines)
    saved = None
    if work_s > 0 and reserved_s > 0:
        saved = saving(Usage(reserved_s, work_s), Usage(dedicated_s, work_s))
    return SavingTotal(reserved_s, dedicated_s, sum(line.held_s for line in lines), saved)


def active_s(status: ClusterStatus) -> float:
    """Seconds in which at least one job was there."""
    spans = sorted(
        (job.started_s, status.now_s if job.ended_s is None else job.ended_s) for job in status.jobs
    )
    total_s, until_s = 0.0, float("-inf")
    for start_s, end_s in spans:
        total_s += max(0.0, end_s - max(start_s, until_s))
        until_s = max(until_s, end_s)
    return total_s


def _line(job: JobStatus, tally: JobTally) -> SavingLine:
    assert job.iteration_s is not None
    num_iterations = min(job.iteration, tally.num_iterations)
    work_s = num_iterations * tally.alone_s(job.iteration_s)
    # One that rests is on none, and had at least one.
    num_groups = len(job.group.split("+"))
    return SavingLine(job.name, num_iterations, work_s, num_groups * work_s, tally.held_s)
