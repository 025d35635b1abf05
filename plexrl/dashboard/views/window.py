"""The page of the timeline: the bars of some groups in a window of time that may follow now."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from plexrl.core.status import GroupStatus, JobStatus
from plexrl.dashboard.lanes import (
    AdoptedPlan,
    Bar,
    Kind,
    actual_bars,
    function_of,
    job_bars,
    planned_bars,
)
from plexrl.dashboard.tally import Tally
from solver.trace import LeaseRecord

GROUPS_PER_PAGE = 8
"""Groups shown at once: two lanes each, and their jobs below."""

LEASES_SHOWN = 400
"""Newest leases drawn at most, all groups in view together: more are too thin to tell apart."""

JOBS_SHOWN = 24
"""Lanes of jobs at most."""

AHEAD = 0.25
"""Share of the window that shows the plan beyond now."""


@dataclass(frozen=True, slots=True)
class Window:
    """What is in view; seconds on the cluster's clock."""

    start_s: float
    now_s: float
    end_s: float


def following(now_s: float, length_s: float) -> Window:
    """The window of a page that follows now; it begins with the cluster at the earliest."""
    start_s = max(0.0, now_s - (1 - AHEAD) * length_s)
    return Window(start_s, now_s, start_s + length_s)


def window_bars(
    groups: Sequence[GroupStatus],
    jobs: Iterable[JobStatus],
    tally: Tally,
    plans: Sequence[AdoptedPlan],
    window: Window,
) -> list[Bar]:
    """Bars of these groups that touch the window, and what jobs on them do anywhere.

    Parameters
    ----------
    groups
        Groups in view.
    jobs
        All jobs: some may be on groups that are not in view, too.
    tally
        Remembers recent leases.
    plans
        Plans in order of adoption.
    window
        What is in view.
    """
    names = frozenset(group.name for group in groups)
    room = LEASES_SHOWN // max(1, len(groups))

    def recent(name: str) -> list[LeaseRecord]:
        found = tally.recent(name, window.start_s)[-room:]
        return [lease for lease in found if lease.started_s < window.end_s]

    leases = [lease for group in groups for lease in recent(group.name)]
    shown = dict.fromkeys(lease.job for lease in leases)
    beside = {place for job in jobs if job.name in shown for place in job.group.split("+")} - names
    elsewhere = [lease for name in sorted(beside) for lease in recent(name) if lease.job in shown]
    bars = [
        *planned_bars(plans, {}, window.end_s, since_s=window.start_s, groups=names),
        *actual_bars(leases),
        *_held_now(groups, window.now_s),
        *_job_lanes([*leases, *elsewhere]),
    ]
    return [bar for bar in bars if bar.end_s > window.start_s and bar.start_s < window.end_s]


def _held_now(groups: Iterable[GroupStatus], now_s: float) -> list[Bar]:
    """Leases that have not ended yet."""
    return [
        Bar(
            section="actual",
            lane=group.name,
            job=group.holder,
            kind=Kind.HELD,
            function=function_of(group.function),
            start_s=now_s - group.held_for_s,
            end_s=now_s,
            op=group.function,
            note="holds the group right now",
        )
        for group in groups
        if group.holder and group.held_for_s > 0
    ]


def _job_lanes(leases: Sequence[LeaseRecord]) -> list[Bar]:
    shown = list(dict.fromkeys(lease.job for lease in leases))[:JOBS_SHOWN]
    return job_bars(lease for lease in leases if lease.job in shown)
