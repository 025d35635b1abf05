"""What PlexRL adds to Dask's performance report: its pages, as they stand when the report ends."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter

from bokeh.embed import components

from plexrl.dashboard import fragments
from plexrl.dashboard.source import Cockpit, Reading
from plexrl.dashboard.timeline import layout
from plexrl.dashboard.views.jobs import job_lines, reward_curve
from plexrl.dashboard.views.window import GROUPS_PER_PAGE
from plexrl.markup import STYLE
from solver.trace import LeaseRecord, busy_s

LEASES_SHOWN = 1600
"""Newest leases drawn at most, all groups together: some two megabytes of bars."""


_LINK = (
    '<a href="#plexrl" style="position:fixed;top:4px;right:14px;z-index:9;'
    'font:13px system-ui,sans-serif">PlexRL: Timeline, Jobs, State, Plan, Savings ↓</a>'
)
"""Dask's part fills the window, so without it nobody would know what stands below."""


def pages(cockpit: Cockpit, since_s: float) -> str:
    """Timeline, Jobs, State, Plan and Savings below each other, as markup for a page with Bokeh.

    Parameters
    ----------
    cockpit
        Where the numbers come from.
    since_s
        Where the timeline begins, in seconds on the cluster's clock; the tables tell all since
        the cluster began.
    """
    reading = cockpit.read()
    status, tally = reading.status, reading.tally
    curves = {
        line.name: reward_curve(cockpit.iterations(line.name)) for line in job_lines(status, tally)
    }
    parts = (
        fragments.jobs_page(status, tally, curves),
        fragments.state_page(status, tally),
        fragments.plan_page(status, cockpit.solves()),
        fragments.savings_page(status, tally),
    )
    return (
        f'{_LINK}<div id="plexrl" style="padding:1em"><style>{STYLE}</style><hr>'
        f"{_timeline(cockpit, reading, since_s)}<hr>{'<hr>'.join(parts)}</div>"
    )


def _timeline(cockpit: Cockpit, reading: Reading, since_s: float) -> str:
    groups = [group.name for group in reading.status.groups]
    leases = {name: reading.tally.recent(name, since_s) for name in groups}
    busiest = sorted(groups, key=lambda name: -busy_s(leases[name]))[:GROUPS_PER_PAGE]
    shown = _newest([lease for name in busiest for lease in leases[name]])
    jobs = {lease.job for lease in shown}
    iterations = [
        record
        for job in sorted(jobs)
        for record in cockpit.iterations(job)
        if record.ended_s >= since_s
    ]
    told = f"groups: {len(groups)}"
    if len(busiest) < len(groups):
        told += f", the {len(busiest)} busiest of them shown"
    num_left_out = sum(len(leases[name]) for name in busiest) - len(shown)
    if num_left_out:
        told += f"; {num_left_out} older leases left out"
    script, place = components(
        layout(shown, iterations, cockpit.plans(), title="Timeline", subtitle=told)
    )
    return f"{script}{place}"


def _newest(leases: Sequence[LeaseRecord]) -> list[LeaseRecord]:
    return sorted(leases, key=attrgetter("ended_s"))[-LEASES_SHOWN:]
