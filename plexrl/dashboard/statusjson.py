"""The status of a cluster as JSON types: for the route, the command line and scripts alike."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict

from plexrl.dashboard.source import Reading
from plexrl.dashboard.views.jobs import slowdown
from plexrl.dashboard.views.savings import saving_lines, saving_total
from plexrl.dashboard.views.state import health


def finite(metrics: Mapping[str, float]) -> dict[str, float | None]:
    """Metrics as JSON has them: it knows no NaN and no infinity, so those become null."""
    return {name: value if math.isfinite(value) else None for name, value in metrics.items()}


def status_json(reading: Reading) -> dict[str, object]:
    """One reading: `plexrl.core.status.ClusterStatus` and what the pages derive from it.

    Parameters
    ----------
    reading
        One look at the cluster.
    """
    status, tally = reading.status, reading.tally
    total = saving_total(status, saving_lines(status, tally))
    return {
        "now_s": status.now_s,
        "jobs": [
            {
                **asdict(job),
                "state": str(job.state),
                "metrics": finite(job.metrics),
                "left_s": job.left_s,
                "slowdown_estimate": slowdown(job, tally.jobs.get(job.name)),
            }
            for job in status.jobs
        ],
        "groups": [
            {
                **asdict(group),
                "resident": {str(tier): list(held) for tier, held in group.resident.items()},
                "traffic": [
                    {**asdict(moved), "source": str(moved.source), "target": str(moved.target)}
                    for moved in group.traffic
                ],
            }
            for group in status.groups
        ],
        "plan": asdict(status.plan),
        "savings": {**asdict(total), "busy_share": total.busy_share},
        "health": asdict(health(status, tally)),
        "num_leases": tally.num_leases,
    }
