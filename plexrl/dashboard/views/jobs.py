"""The page of jobs: how far each is, what it waits for, whether it keeps its slowdown limit."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from plexrl.core.status import ClusterStatus, JobState, JobStatus
from plexrl.dashboard.tally import JobTally, Tally
from plexrl.spelling import counted
from solver.trace import IterationRecord

ROWS_PER_PAGE = 32
"""Jobs shown at once: what fits a screen; more make the page slow, not clear."""

CURVE_POINTS = 40
"""Points of a reward curve: one for every two or three pixels."""

NAMES_SHOWN = 6
"""Jobs over their limit that the headline names: a line of text."""

NO_JOBS = "no jobs yet; plexrl.attach(client).submit(job) starts one here"

_ORDER = {
    JobState.FAILED: 0,
    JobState.RUNNING: 1,
    JobState.STARTING: 2,
    JobState.PAUSED: 3,
    JobState.CANCELLED: 4,
    JobState.FINISHED: 5,
}
"""What needs a look comes first."""


@dataclass(frozen=True, slots=True)
class JobLine:
    """One job as the page shows it."""

    name: str
    state: JobState
    group: str
    iteration: int
    iterations: int
    reward_first: float | None
    reward_last: float | None
    iteration_s: float | None
    """Mean seconds of its iterations."""
    slowdown: float | None
    """Estimate: mean iteration over the same without waits for a group and swaps."""
    slowdown_limit: float
    staleness: int | None
    """Versions between the rollout and the train function of its last iteration."""
    phase: str
    waits_for: str
    left_s: float | None
    """Seconds until it ends, at the pace so far; None if it ended, rests or has no pace yet."""
    error: str

    @property
    def is_over_limit(self) -> bool:
        """Whether the estimate is above the limit."""
        return self.slowdown is not None and self.slowdown > self.slowdown_limit


def job_lines(status: ClusterStatus, tally: Tally, page: int = 0) -> list[JobLine]:
    """Jobs on one page, in the order of `most_urgent_first`.

    Parameters
    ----------
    status, tally
        One reading.
    page
        Number of the page, from 0; each holds `ROWS_PER_PAGE` jobs.
    """
    ordered = most_urgent_first(status.jobs)
    shown = ordered[page * ROWS_PER_PAGE : (page + 1) * ROWS_PER_PAGE]
    return [_line(job, tally.jobs.get(job.name)) for job in shown]


def most_urgent_first(jobs: Iterable[JobStatus]) -> list[JobStatus]:
    """Failed ones first, then running, then ended.

    Those that run stand in order of arrival, those that ended the latest first: of many, people
    look for what just ended.
    """
    # Sorting keeps the order of arrival among equals.
    return sorted(jobs, key=lambda job: (_ORDER[job.state], -(job.ended_s or 0.0)))


def slowdown(job: JobStatus, tally: JobTally | None) -> float | None:
    """Estimated slowdown of a job; None before it committed an iteration."""
    if job.iteration_s is None or tally is None or not tally.num_iterations:
        return None
    return job.iteration_s / tally.alone_s(job.iteration_s)


def _line(job: JobStatus, tally: JobTally | None) -> JobLine:
    is_over = job.state.is_terminal
    return JobLine(
        name=job.name,
        state=job.state,
        group=job.group,
        iteration=job.iteration,
        iterations=job.iterations,
        reward_first=job.reward_first,
        reward_last=job.reward_last,
        iteration_s=job.iteration_s,
        slowdown=slowdown(job, tally),
        slowdown_limit=job.slowdown_limit,
        staleness=None if tally is None else tally.staleness,
        phase=job.phase if not is_over else "",
        waits_for=job.waiting if not is_over else job.why_early,
        left_s=None if job.state is JobState.PAUSED else job.left_s,
        error=job.error.strip().splitlines()[0] if job.error.strip() else "",
    )


def reward_curve(iterations: Sequence[IterationRecord]) -> tuple[float, ...]:
    """Mean rewards of a job over its iterations, thinned to `CURVE_POINTS`; the last one kept."""
    step = max(1, -(-len(iterations) // CURVE_POINTS))
    # From the end, so that the newest iteration is always drawn.
    picked = iterations[::-1][::step][::-1]
    values = [dict(record.metrics).get("reward_mean") for record in picked]
    return tuple(value for value in values if value is not None)


def headline(status: ClusterStatus, tally: Tally) -> str:
    """All jobs in one sentence."""
    counts = dict.fromkeys(JobState, 0)
    for job in status.jobs:
        counts[job.state] += 1
    told = [f"{count} {state}" for state, count in counts.items() if count]
    over = [
        job.name
        for job in status.jobs
        if (slow := slowdown(job, tally.jobs.get(job.name))) and slow > job.slowdown_limit
    ]
    text = f"{counted(len(status.jobs), 'job')}: {', '.join(told)}" if told else NO_JOBS
    if not over:
        return text
    others = f" and {len(over) - NAMES_SHOWN} more" if len(over) > NAMES_SHOWN else ""
    return f"{text} · over their slowdown limit: {', '.join(over[:NAMES_SHOWN])}{others}"
