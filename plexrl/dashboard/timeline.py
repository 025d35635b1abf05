"""The timeline page: planned and actual lanes of a run in one HTML file that needs no network."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from pathlib import Path

from bokeh.embed import file_html
from bokeh.layouts import column
from bokeh.models import (
    Column,
    ColumnDataSource,
    Div,
    FactorRange,
    HoverTool,
    Range1d,
    RangeTool,
)
from bokeh.plotting import figure
from bokeh.resources import INLINE

from plexrl.dashboard.lanes import (
    AdoptedPlan,
    Bar,
    Kind,
    actual_bars,
    function_of,
    job_bars,
    lengths,
    planned_bars,
)
from plexrl.dashboard.palette import STORE_SWAP_COLOUR, SWAP_COLOUR, job_colours, shade
from plexrl.spelling import as_counted, counted
from solver.trace import IterationRecord, LeaseRecord, busy_s

REWARD = "reward_mean"
"""Metric that the lower panel draws."""

_WINDOW_LEASES = 60
"""Leases in view when the page opens: few enough to tell functions apart."""

_TITLES = {"plan": "planned", "actual": "actual", "jobs": "job"}

TOOLTIP = """
<div style="max-width:26em"><b>@job</b> &nbsp; @what<br>@op<br>
@start{0.000} – @end{0.000} s &nbsp; (@length{0.000} s)<br><i>@note</i></div>
"""


def write_timeline(
    path: str | Path,
    leases: Sequence[LeaseRecord],
    iterations: Sequence[IterationRecord],
    plans: Sequence[AdoptedPlan] = (),
    *,
    title: str = "Timeline",
    subtitle: str = "",
) -> Path:
    """Write the timeline of a run as one self-contained HTML page.

    Parameters
    ----------
    path
        File to write.
    leases, iterations
        The execution log.
    plans
        Plans in order of adoption.
    title, subtitle
        Heading of the page and the line under it.

    Returns
    -------
    Path
        The file.
    """
    page = render(leases, iterations, plans, title=title, subtitle=subtitle)
    path = Path(path)
    path.write_text(page, encoding="utf-8")
    return path


def render(
    leases: Sequence[LeaseRecord],
    iterations: Sequence[IterationRecord],
    plans: Sequence[AdoptedPlan],
    *,
    title: str,
    subtitle: str = "",
) -> str:
    """The page as text; see `write_timeline`."""
    made = layout(leases, iterations, plans, title=title, subtitle=subtitle)
    return str(file_html(made, INLINE, title))


def layout(
    leases: Sequence[LeaseRecord],
    iterations: Sequence[IterationRecord],
    plans: Sequence[AdoptedPlan],
    *,
    title: str,
    subtitle: str = "",
) -> Column:
    """Heading, lanes, overview and rewards below each other; see `write_timeline`."""
    origin_s = min((lease.ready_s for lease in leases), default=0.0)
    until_s = max((lease.ended_s for lease in leases), default=origin_s)
    groups = frozenset(lease.group for lease in leases)
    bars = [
        *planned_bars(plans, lengths(leases), until_s, since_s=origin_s, groups=groups),
        *actual_bars(leases),
        *job_bars(leases),
    ]
    jobs = dict.fromkeys([*(lease.job for lease in leases), *(bar.job for bar in bars)])
    colours = job_colours(list(jobs))
    width = {"sizing_mode": "stretch_width"}
    lanes = _lanes_figure(bars, colours, origin_s, _opening_window(leases, origin_s))
    parts = [
        Div(text=_heading(title, subtitle, leases), **width),
        lanes,
        _overview(lanes, bars, colours, origin_s, until_s),
    ]
    if rewards := _reward_points(iterations, origin_s):
        parts.append(_rewards_figure(rewards, colours))
    return column(*parts, **width, styles={"max-width": "1500px", "margin": "0 auto"})


def columns(bars: Sequence[Bar], colour: str, origin_s: float) -> dict[str, list[object]]:
    """The bars of one job as columns of a plot; times from the origin."""
    return {
        "lane": [(_TITLES[bar.section], bar.lane) for bar in bars],
        "start": [bar.start_s - origin_s for bar in bars],
        "end": [bar.end_s - origin_s for bar in bars],
        "length": [bar.end_s - bar.start_s for bar in bars],
        "job": [bar.job for bar in bars],
        "op": [bar.op for bar in bars],
        "what": [_what(bar) for bar in bars],
        "note": [bar.note for bar in bars],
        "fill": [_fill(bar, colour) for bar in bars],
        "alpha": [{Kind.QUEUED: 0.0, Kind.APART: 0.22}.get(bar.kind, 1.0) for bar in bars],
        "line": [colour if bar.kind is Kind.QUEUED else _fill(bar, colour) for bar in bars],
        "hatch": ["/" if bar.kind is Kind.QUEUED else " " for bar in bars],
    }


def _what(bar: Bar) -> str:
    return {
        Kind.PLANNED: f"{bar.function}, planned",
        Kind.HELD: bar.function,
        Kind.SWAP: f"swap from {bar.function}",
        Kind.QUEUED: f"queued for {bar.function}",
        Kind.APART: "without a group",
    }[bar.kind]


def _fill(bar: Bar, colour: str) -> str:
    if bar.kind is Kind.SWAP:
        return STORE_SWAP_COLOUR if bar.function == "store" else SWAP_COLOUR
    return shade(colour, bar.function)


def factors(bars: Sequence[Bar]) -> list[tuple[str, str]]:
    """Lanes from the bottom up: jobs, then actual, then planned groups on top."""
    found = dict.fromkeys((bar.section, bar.lane) for bar in bars)
    ordered = sorted(found, key=lambda key: (tuple(_TITLES).index(key[0]), as_counted(key[1])))
    return [(_TITLES[section], lane) for section, lane in reversed(ordered)]


def _opening_window(leases: Sequence[LeaseRecord], origin_s: float) -> tuple[float, float]:
    """Seconds in view when the page opens: some cycles after a third of the run."""
    if not leases:
        return 0.0, 1.0
    records = sorted(leases, key=lambda lease: lease.started_s)
    first = len(records) // 3 if len(records) > _WINDOW_LEASES else 0
    last = min(first + _WINDOW_LEASES, len(records)) - 1
    return records[first].started_s - origin_s, records[last].ended_s - origin_s


def _lanes_figure(
    bars: Sequence[Bar],
    colours: Mapping[str, str],
    origin_s: float,
    window_s: tuple[float, float],
) -> figure:

    lanes = factors(bars)
    end_s = max((bar.end_s for bar in bars), default=origin_s + 1.0) - origin_s
    plot = figure(
        height=110 + 44 * max(len(lanes), 2),
        sizing_mode="stretch_width",
        y_range=FactorRange(*lanes, group_padding=0.6, factor_padding=0.1),
        x_range=Range1d(*window_s, bounds=(-0.02 * end_s, 1.02 * end_s)),
        tools="xpan,xwheel_zoom,xzoom_in,xzoom_out,reset,save",
        active_drag="xpan",
        active_scroll="xwheel_zoom",
        x_axis_label="seconds since the first function was ready",
    )
    for job, colour in colours.items():
        _add_bars(plot, job, colour, columns([b for b in bars if b.job == job], colour, origin_s))
    plot.add_tools(HoverTool(tooltips=TOOLTIP, point_policy="follow_mouse"))
    _dress(plot)
    plot.ygrid.grid_line_color = None
    plot.yaxis.separator_line_color = None
    plot.yaxis.group_text_font_size = "12px"
    return plot


def _add_bars(plot: figure, job: str, colour: str, data: dict[str, list[object]]) -> None:
    plot.hbar(
        y="lane",
        left="start",
        right="end",
        height=0.86,
        source=ColumnDataSource(data),
        fill_color="fill",
        fill_alpha="alpha",
        line_color="line",
        line_width=0.6,
        hatch_pattern="hatch",
        hatch_color=colour,
        hatch_alpha=0.55,
        hatch_weight=0.7,
        legend_label=job,
    )


def _dress(plot: figure) -> None:
    """What both panels share: a legend outside the data that hides on a click, quiet lines."""
    if plot.legend:
        plot.add_layout(plot.legend[0], "right")
        plot.legend.click_policy = "hide"
        plot.legend.title = "job (click hides)"
        plot.legend.border_line_color = None
    plot.toolbar.logo = None
    plot.outline_line_color = None
    plot.xgrid.grid_line_alpha = 0.5
    plot.xaxis.minor_tick_line_color = None


def _overview(
    lanes: figure, bars: Sequence[Bar], colours: Mapping[str, str], origin_s: float, until_s: float
) -> figure:
    """The whole run in small, with a window to drag."""
    names = {bar.lane for bar in bars if bar.section == "actual"}
    groups = sorted(names, key=as_counted, reverse=True) or [""]
    plot = figure(
        height=46 + 18 * len(groups),
        sizing_mode="stretch_width",
        y_range=groups,
        x_range=(0, max(until_s - origin_s, 1e-3)),
        tools="",
        toolbar_location=None,
    )
    held = [bar for bar in bars if bar.section == "actual" and bar.kind is Kind.HELD]
    plot.hbar(
        y=[bar.lane for bar in held],
        left=[bar.start_s - origin_s for bar in held],
        right=[bar.end_s - origin_s for bar in held],
        height=0.8,
        fill_color=[colours[bar.job] for bar in held],
        line_color=None,
    )
    window = RangeTool(x_range=lanes.x_range)
    window.overlay.fill_alpha = 0.15
    window.overlay.fill_color = "#222222"
    plot.add_tools(window)
    plot.grid.grid_line_color = None
    plot.outline_line_color = None
    return plot


def _reward_points(
    iterations: Sequence[IterationRecord], origin_s: float
) -> dict[str, list[tuple[float, float, int]]]:
    """Job → (seconds, reward, iteration)."""
    points: dict[str, list[tuple[float, float, int]]] = {}
    for record in sorted(iterations, key=lambda record: record.ended_s):
        value = dict(record.metrics).get(REWARD)
        if value is not None:
            at = (record.ended_s - origin_s, value, record.iteration)
            points.setdefault(record.job, []).append(at)
    return points


def _rewards_figure(
    points: Mapping[str, Sequence[tuple[float, float, int]]], colours: Mapping[str, str]
) -> figure:

    plot = figure(
        height=250,
        sizing_mode="stretch_width",
        tools="xpan,xwheel_zoom,reset,save",
        active_scroll="xwheel_zoom",
        x_axis_label="seconds since the first function was ready",
        y_axis_label="mean reward of the iteration",
    )
    for job, rows in points.items():
        source = {
            "x": [row[0] for row in rows],
            "y": [row[1] for row in rows],
            "iteration": [row[2] for row in rows],
        }
        colour = colours.get(job, SWAP_COLOUR)
        plot.line("x", "y", source=source, color=colour, line_width=2, legend_label=job, name=job)
    tips = [("job", "$name"), ("iteration", "@iteration"), ("reward", "@y{0.000}")]
    plot.add_tools(HoverTool(tooltips=tips, mode="mouse"))
    _dress(plot)
    return plot


def _heading(title: str, subtitle: str, leases: Sequence[LeaseRecord]) -> str:
    groups = len({lease.group for lease in leases}) or 1
    span_s = max((r.ended_s for r in leases), default=0.0) - min(
        (r.started_s for r in leases), default=0.0
    )
    swapped = [lease for lease in leases if lease.swap_source != "device"]
    share = busy_s(leases) / (span_s * groups) if span_s > 0 else 0.0
    functions = list(dict.fromkeys(function_of(lease.op) for lease in leases))
    facts = (
        f"{counted(len(leases), 'lease')} in {span_s:.1f} s · group busy {share:.0%} · "
        f"{counted(len(swapped), 'swap')}, "
        f"{sum(lease.swap_bytes for lease in swapped) / 1e6:.0f} MB"
    )
    return (
        f'<h2 style="margin:0.4em 0 0.1em;font-weight:600">{html.escape(title)}</h2>'
        f'<div style="color:#555">{html.escape(subtitle)}</div>'
        f'<div style="margin:0.3em 0">{facts}</div>'
        f'<div style="margin:0.2em 0 0.6em">{key(functions)}</div>'
    )


def key(functions: Sequence[str]) -> str:
    """What shades and hatches mean, shown on a neutral colour."""
    grey = "#8a8a8a"
    entries = [(shade(grey, function), function) for function in functions]
    entries += [(SWAP_COLOUR, "swap from host"), (STORE_SWAP_COLOUR, "swap from store")]
    swatches = [
        f'<span style="display:inline-block;width:1.1em;height:0.8em;background:{colour}"></span> '
        f"{html.escape(label)}"
        for colour, label in entries
    ]
    hatch = f"repeating-linear-gradient(135deg,{grey},{grey} 1px,#fff 1px,#fff 4px)"
    swatches.append(
        f'<span style="display:inline-block;width:1.1em;height:0.8em;background:{hatch};'
        f'border:1px solid {grey}"></span> queued for the group'
    )
    swatches.append(
        '<span style="display:inline-block;width:1.1em;height:0.8em;background:#e2e2e2"></span> '
        "tools, rewards, judge: no group held"
    )
    return " &nbsp;&nbsp; ".join(swatches)
