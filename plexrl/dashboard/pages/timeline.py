"""The page of the timeline: planned and actual lanes of groups, live."""

from __future__ import annotations

from collections.abc import Mapping

from bokeh.layouts import column, row
from bokeh.models import (
    ColumnDataSource,
    Div,
    FactorRange,
    HoverTool,
    InlineStyleSheet,
    Range1d,
    Select,
    Span,
    Toggle,
)
from bokeh.plotting import figure

from plexrl.dashboard.fragments import colours_of
from plexrl.dashboard.lanes import Bar, Kind, function_of
from plexrl.dashboard.pages.page import pages_of
from plexrl.dashboard.source import Cockpit, Reading
from plexrl.dashboard.timeline import TOOLTIP, columns, factors, key
from plexrl.dashboard.views.window import GROUPS_PER_PAGE, Window, following, window_bars
from plexrl.markup import STYLE, page, title

LENGTHS_S = {"10": "10 seconds", "30": "30 seconds", "120": "2 minutes", "600": "10 minutes"}
"""Lengths of the window on offer."""

DRAW_S = 0.9
"""Seconds between drawings: one a second, as all bars travel to the browser each time."""

LANE_PX, MAX_LANE_PX, WINDOW_PX = 26, 46, 620
"""Height of a lane where there are many and few; they fill a usual window before they shrink."""


class TimelinePage:
    """Lanes of some groups in a window that follows now, until someone looks elsewhere.

    Parameters
    ----------
    cockpit
        Where the numbers come from.
    """

    def __init__(self, cockpit: Cockpit) -> None:
        self._cockpit = cockpit
        self._drawn_s = float("-inf")
        self._chosen = ("", "")
        self._view_s = (0.0, 0.0)
        """The window as it was last drawn; one that differs now was moved by a person."""
        self._heading = Div(
            sizing_mode="stretch_width", stylesheets=[InlineStyleSheet(css=STYLE)], text=""
        )
        self._groups = Select(value="0", options=[("0", "groups")], width=180)
        self._length = Select(value="30", options=list(LENGTHS_S.items()), width=120)
        self._follow = Toggle(label="follow now", active=True, width=100)
        # Hatches are slow to draw, so bars that are queued have a source of their own.
        self._solid = ColumnDataSource(columns([], "#000000", 0.0))
        self._hatched = ColumnDataSource(columns([], "#000000", 0.0))
        self._now = Span(dimension="height", line_color="#57606a", line_dash="dotted", location=0)
        self._plot = _figure(self._solid, self._hatched, self._now)
        self.root = column(
            row(self._groups, self._length, self._follow),
            self._heading,
            self._plot,
            sizing_mode="stretch_width",
            styles={"overflow": "auto", "padding": "8px 14px"},
        )

    def update(self) -> None:
        """Draw what is due: the newest reading while the page follows now, else what moved."""
        now_s = self._cockpit.now_s()
        chosen, view_s = (self._groups.value, self._length.value), self._seen_s()
        was_moved = bool(self._chosen[0]) and view_s != self._view_s
        if was_moved:
            self._follow.active = False
        is_due = self._follow.active and now_s >= self._drawn_s + DRAW_S
        if is_due or was_moved or chosen != self._chosen:
            window = self._window(now_s, view_s, chosen)
            self._drawn_s, self._chosen = now_s, chosen
            self._draw(self._cockpit.read(), window)
            self._view_s = self._seen_s()

    def _seen_s(self) -> tuple[float, float]:
        return self._plot.x_range.start, self._plot.x_range.end

    def _window(self, now_s: float, view_s: tuple[float, float], chosen: tuple[str, str]) -> Window:
        """What shall be in view: up to now, or where a person looks."""
        length_s = float(chosen[1])
        if self._follow.active:
            return following(now_s, length_s)
        has_new_length = chosen[1] != self._chosen[1]
        return Window(view_s[1] - length_s if has_new_length else view_s[0], now_s, view_s[1])

    def _draw(self, reading: Reading, window: Window) -> None:
        groups = reading.status.groups
        options = pages_of(len(groups), GROUPS_PER_PAGE, "groups")
        if options != self._groups.options:
            self._groups.options = options
        first = int(self._groups.value) * GROUPS_PER_PAGE
        shown = groups[first : first + GROUPS_PER_PAGE]
        # Half a window more on the left, for a look back without waiting.
        half_s = 0.5 * (window.end_s - window.start_s)
        wider = Window(window.start_s - half_s, window.now_s, window.end_s)
        jobs, plans = reading.status.jobs, self._cockpit.plans()
        bars = window_bars(shown, jobs, reading.tally, plans, wider)
        idle = [Bar("actual", group.name, "", Kind.HELD, "", 0.0, 0.0) for group in shown]
        self._show(bars, window, colours_of(reading.status), factors([*idle, *bars]))
        told = f"groups: {len(groups)}, leases so far: {reading.tally.num_leases}"
        functions = list(dict.fromkeys(function_of(bar.op) for bar in bars if bar.function))
        self._heading.text = page(title("Timeline", told), key(functions or ["rollout", "train"]))

    def _show(
        self,
        bars: list[Bar],
        window: Window,
        colours: dict[str, str],
        lanes: list[tuple[str, str]],
    ) -> None:
        if lanes and lanes != self._plot.y_range.factors:
            self._plot.y_range.factors = lanes
            room = max(len(lanes), 4)
            self._plot.height = 110 + room * max(LANE_PX, min(MAX_LANE_PX, WINDOW_PX // room))
        queued = [bar for bar in bars if bar.kind is Kind.QUEUED]
        self._hatched.data = _data(queued, colours)
        self._solid.data = _data([bar for bar in bars if bar.kind is not Kind.QUEUED], colours)
        self._now.location = window.now_s
        self._plot.x_range.update(start=window.start_s, end=window.end_s)


def _data(bars: list[Bar], colours: Mapping[str, str]) -> dict[str, list[object]]:
    """Bars of all jobs as columns of a plot."""
    data = columns([], "#000000", 0.0)
    by_job: dict[str, list[Bar]] = {}
    for bar in bars:
        by_job.setdefault(bar.job, []).append(bar)
    for job, rows in by_job.items():
        for name, values in columns(rows, colours.get(job, "#8a8a8a"), 0.0).items():
            data[name] += values
    return data


def _figure(solid: ColumnDataSource, hatched: ColumnDataSource, now: Span) -> figure:
    plot = figure(
        height=240,
        sizing_mode="stretch_width",
        y_range=FactorRange(("actual", ""), group_padding=0.6, factor_padding=0.1),
        x_range=Range1d(0, 30),
        tools="xpan,xwheel_zoom,xzoom_in,xzoom_out,reset,save",
        active_drag="xpan",
        active_scroll="xwheel_zoom",
        x_axis_label="seconds on the cluster's clock",
    )
    bar = {"y": "lane", "left": "start", "right": "end", "height": 0.86}
    plot.hbar(**bar, source=solid, fill_color="fill", fill_alpha="alpha", line_color=None)
    plot.hbar(
        **bar,
        source=hatched,
        fill_color=None,
        line_color="line",
        line_width=0.6,
        hatch_pattern="/",
        hatch_color="line",
        hatch_alpha=0.55,
        hatch_weight=0.7,
    )
    plot.add_layout(now)
    plot.add_tools(HoverTool(tooltips=TOOLTIP, point_policy="follow_mouse"))
    plot.toolbar.logo = None
    plot.outline_line_color = None
    plot.ygrid.grid_line_color = None
    plot.xgrid.grid_line_alpha = 0.5
    plot.yaxis.separator_line_color = None
    return plot
