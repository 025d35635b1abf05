"""The page of a plan: one HTML file that needs no network.

Groups' cycles, and what they would be with one more job or one group fewer; slowdowns beside their
limits, cost against bound over time, saving against slowdown limit, each job's gaps and who fills
them, pairwise overlap.
"""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from bokeh.embed import file_html
from bokeh.layouts import column
from bokeh.models import ColumnDataSource, DataTable, Div, HoverTool, TableColumn, UIElement
from bokeh.plotting import figure
from bokeh.resources import INLINE

from plexrl.dashboard.palette import job_colours
from plexrl.dashboard.plancycles import Alternative, PlannedSpan, cycles, dress

MAX_OVERLAP_JOBS = 60
"""Jobs in the overlap picture at most."""
_WIDE = {"sizing_mode": "stretch_width"}


@dataclass(frozen=True, slots=True)
class JobRow:
    """One job."""

    job: str
    group: str
    slowdown: float
    limit: float
    alone_s: float


@dataclass(frozen=True, slots=True)
class GapRow:
    """One stretch in which a job does not hold its group."""

    group: str
    job: str
    after_op: str
    length_s: float
    """Mean, where it is met more than once."""
    filled_share: float
    filled_by: tuple[tuple[str, float], ...]
    """Other jobs and the seconds they hold the group in it, on average."""


@dataclass(frozen=True, slots=True)
class PlanReport:
    """Everything the page shows."""

    title: str
    facts: tuple[tuple[str, str], ...]
    spans: tuple[PlannedSpan, ...]
    jobs: tuple[JobRow, ...]
    gaps: tuple[GapRow, ...]
    overlaps: Mapping[tuple[str, str], float]
    """(job, other) → share of the job's gaps in which the other holds the group."""
    progress: tuple[tuple[float, float], ...] = ()
    """Seconds and value of the plans met on the way."""
    seconds: float = 0.0
    bound: float | None = None
    """No plan has a smaller value."""
    unit: str = "objective"
    """Of values."""
    frontier: tuple[tuple[float, float], ...] = field(default=())
    """Slowdown limit and saving."""
    alternatives: tuple[Alternative, ...] = field(default=())
    """What the plan would be if something were otherwise."""
    pools: Mapping[str, str] = field(default_factory=lambda: {"": "One cycle of each group"})
    """Pool of the spans → what stands above them."""
    frontier_note: str = "plans without the solver"
    """How the plans of the frontier were found."""
    more: str = ""
    """How to see what the page does not show."""


def write_plan_report(report: PlanReport) -> str:
    """The page as text."""
    others = (span.job for other in report.alternatives for span in other.spans)
    colours = job_colours(list(dict.fromkeys([*(row.job for row in report.jobs), *others])))
    parts: list[UIElement] = [Div(text=_heading(report), **_WIDE)]
    parts += cycles(report.spans, report.alternatives, colours, report.pools)
    parts.append(_slowdowns(report, colours))
    if report.progress:
        parts.append(_progress(report))
    if report.frontier:
        parts.append(_frontier(report))
    if report.gaps:
        parts += [Div(text="<h3>Gaps, and who fills them</h3>", **_WIDE), _gaps(report.gaps)]
    if report.overlaps:
        parts.append(_overlaps(report))
    if report.more:
        parts.append(Div(text=f"<p>{html.escape(report.more)}</p>", **_WIDE))
    layout = column(*parts, **_WIDE, styles={"max-width": "1400px", "margin": "0 auto"})
    return str(file_html(layout, INLINE, report.title))


def _slowdowns(report: PlanReport, colours: Mapping[str, str]) -> figure:
    rows = sorted(report.jobs, key=lambda row: row.slowdown)
    plot = figure(
        title="Slowdown of each job (bar) and its limit (mark)",
        height=260,
        x_range=[row.job for row in rows],
        y_axis_label="iteration shared ÷ alone",
        tools="xpan,xwheel_zoom,reset,save",
        **_WIDE,
    )
    source = ColumnDataSource(
        {
            "job": [row.job for row in rows],
            "slowdown": [row.slowdown for row in rows],
            "limit": [row.limit for row in rows],
            "group": [row.group for row in rows],
            "fill": [colours[row.job] for row in rows],
        }
    )
    bars = plot.vbar(x="job", top="slowdown", width=0.8, source=source, fill_color="fill")
    plot.scatter(x="job", y="limit", marker="dash", size=16, source=source, color="#c1121f")
    tips = [("job", "@job on @group"), ("slowdown", "@slowdown{0.000}"), ("limit", "@limit{0.00}")]
    plot.add_tools(HoverTool(tooltips=tips, renderers=[bars]))
    plot.y_range.start = 0
    plot.xaxis.major_label_orientation = 0.9
    dress(plot)
    return plot


def _progress(report: PlanReport) -> figure:
    plot = figure(
        title="Best plan and bound while solving",
        height=220,
        x_axis_label="seconds",
        y_axis_label=report.unit,
        tools="reset,save",
        **_WIDE,
    )
    seconds = [at for at, _ in report.progress] + [report.seconds]
    objective = [value for _, value in report.progress]
    plot.step(seconds, [*objective, objective[-1]], mode="after", legend_label="best plan")
    if report.bound is not None:
        plot.line(
            [0.0, report.seconds],
            [report.bound] * 2,
            color="#c1121f",
            line_dash="dashed",
            legend_label="bound",
        )
    dress(plot)
    return plot


def _frontier(report: PlanReport) -> figure:
    plot = figure(
        title=f"What if every job had another slowdown limit ({report.frontier_note})",
        height=220,
        x_axis_label="slowdown limit",
        y_axis_label="share of group-time saved",
        tools="reset,save",
        **_WIDE,
    )
    limits, savings = zip(*report.frontier, strict=True)
    plot.line(limits, savings, line_width=2)
    plot.scatter(limits, savings, size=7)
    dress(plot)
    return plot


def _gaps(rows: Sequence[GapRow]) -> DataTable:
    source = ColumnDataSource(
        {
            "job": [row.job for row in rows],
            "group": [row.group for row in rows],
            "after": [row.after_op for row in rows],
            "length": [f"{row.length_s:.1f}" for row in rows],
            "filled": [f"{row.filled_share:.0%}" for row in rows],
            "by": [
                ", ".join(f"{job} {s:.1f} s" for job, s in row.filled_by) or "nobody"
                for row in rows
            ],
        }
    )
    titles = {
        "job": "job",
        "group": "does not hold",
        "after": "gap after",
        "length": "seconds",
        "filled": "filled",
        "by": "by",
    }
    columns = [TableColumn(field=name, title=title) for name, title in titles.items()]
    height = min(60 + 25 * len(rows), 420)
    return DataTable(source=source, columns=columns, height=height, index_position=None, **_WIDE)


def _overlaps(report: PlanReport) -> figure:
    meeting = {job for pair in report.overlaps for job in pair}
    jobs = [row.job for row in report.jobs if row.job in meeting][:MAX_OVERLAP_JOBS]
    pairs = [(a, b, v) for (a, b), v in report.overlaps.items() if a in jobs and b in jobs]
    plot = figure(
        title="Share of a job's gaps (row) in which another (column) holds the group",
        height=140 + 24 * len(jobs),
        x_range=jobs,
        y_range=jobs[::-1],
        tools="reset,save",
        **_WIDE,
    )
    source = ColumnDataSource(
        {
            "job": [a for a, _, _ in pairs],
            "other": [b for _, b, _ in pairs],
            "share": [v for _, _, v in pairs],
            "alpha": [min(max(v, 0.04), 1.0) for _, _, v in pairs],
        }
    )
    plot.rect(
        x="other",
        y="job",
        width=0.95,
        height=0.95,
        source=source,
        fill_color="#0072b2",
        fill_alpha="alpha",
        line_color=None,
    )
    plot.add_tools(HoverTool(tooltips=[("gaps of", "@job"), ("filled by @other", "@share{0%}")]))
    plot.xaxis.major_label_orientation = 0.9
    dress(plot)
    return plot


def _heading(report: PlanReport) -> str:
    facts = " · ".join(
        f"{html.escape(name)} <b>{html.escape(value)}</b>" for name, value in report.facts
    )
    return (
        f'<h2 style="margin:0.4em 0 0.1em;font-weight:600">{html.escape(report.title)}</h2>'
        f'<div style="margin:0.3em 0 0.6em">{facts}</div>'
    )
