"""How clusters, runs and plans look in a notebook; pure: statuses in, HTML out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from plexrl.core.status import ClusterStatus, JobStatus
from plexrl.markup import figures, nbytes, number, seconds, standalone, table, text, title, track

_JOB_COLOUR = "#0072b2"
_JOB_HEADERS = ("job", "state", "group", "iteration", "reward", "#s/iteration", "~waits for")


def cluster_html(status: ClusterStatus) -> str:
    """A cluster: its jobs and its groups."""
    groups = [
        [
            text(group.name),
            text(f"{group.holder} {group.function}" if group.holder else "nobody"),
            str(group.num_waiting),
            nbytes(group.host_used_bytes),
            "; ".join(
                f'<span class="{kind}">{text(told)}</span>'
                for kind, told in (("bad", group.warning), ("warn", group.draining))
                if told
            ),
        ]
        for group in status.groups
    ]
    told = f"jobs: {len(status.jobs)}, groups: {len(status.groups)}, plan: {status.plan.status}"
    return standalone(
        title("PlexRL cluster", told),
        table(_JOB_HEADERS, [_job_row(job) for job in status.jobs]),
        "<h3>Groups</h3>",
        table(("group", "held by", "#waiting", "#host memory", "~trouble"), groups),
    )


def run_html(job: JobStatus) -> str:
    """One job, with the metrics of its last iteration."""
    metrics = [(f"{value:.4g}", name) for name, value in sorted(job.metrics.items())]
    return standalone(
        title(f"Run {job.name}", f"slowdown limit {job.slowdown_limit:g}"),
        table(_JOB_HEADERS, [_job_row(job)]),
        figures(metrics),
    )


def plan_html(plan: Mapping[str, object]) -> str:
    """What `plexrl.runtime.client.Cluster.plan` tells."""
    in_force = plan.get("in_force")
    if not isinstance(in_force, Mapping):
        return standalone(title("Plan", "none yet"))
    cycles = in_force.get("cycles")
    rows = [
        [
            text(job),
            number(cycle["predicted_s"], 3),
            number(cycle["actual"]["mean_s"], 3),
            str(cycle["actual"]["iterations"]),
        ]
        for job, cycle in (cycles.items() if isinstance(cycles, Mapping) else ())
    ]
    return standalone(
        title("Plan", f"made because: {in_force['reason']}"),
        figures(
            (
                (str(in_force["status"]), "status"),
                (seconds(in_force["objective_s"]), "cycle"),
                (seconds(in_force["bound_s"]), "proven bound"),
                ("yes" if in_force["verified"] else "no", "verified"),
                (str(plan["num_solves"]), "solves"),
            )
        ),
        table(("job", "#predicted cycle, s", "#actual mean, s", "#iterations"), rows),
    )


class PlanJson(dict[str, Any]):
    """A plan as JSON types that shows itself in a notebook."""

    def _repr_html_(self) -> str:
        return plan_html(self)


@dataclass(frozen=True, slots=True)
class Picture:
    """A picture in a file that shows itself in a notebook."""

    path: Path
    """``.svg`` or ``.html``."""

    def _repr_html_(self) -> str:
        return self.path.read_text(encoding="utf-8")


def _job_row(job: JobStatus) -> list[str]:
    reward = "–"
    if job.reward_first is not None and job.reward_last is not None:
        reward = f"{job.reward_first:.2f} → {job.reward_last:.2f}"
    share = job.iteration / max(1, job.iterations)
    return [
        text(job.name),
        text(job.state),
        text(job.group),
        f"{track(share, _JOB_COLOUR)}{job.iteration}/{job.iterations}",
        reward,
        number(job.iteration_s),
        text(job.error.splitlines()[0] if job.error.strip() else job.waiting),
    ]
