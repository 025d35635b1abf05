"""The cycles of a plan's groups, and on choice those of plans for what could be otherwise."""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from bokeh.models import ColumnDataSource, CustomJS, Div, HoverTool, Select, UIElement
from bokeh.plotting import figure

from plexrl.dashboard.lanes import function_of
from plexrl.dashboard.palette import SWAP_COLOUR, shade

MAX_GROUPS = 60
"""Groups drawn at most: more lanes than fit on any screen help nobody."""
AS_PLANNED = "as planned"
_WIDE = {"sizing_mode": "stretch_width"}


@dataclass(frozen=True, slots=True)
class PlannedSpan:
    """One bar of a group's cycle."""

    group: str
    job: str
    op: str
    start_s: float
    end_s: float
    is_switch: bool


@dataclass(frozen=True, slots=True)
class Alternative:
    """What the plan would be if something were otherwise."""

    name: str
    """What is otherwise."""
    outcome: str
    """What comes of it, in a sentence."""
    spans: tuple[PlannedSpan, ...]
    """Empty where there is no plan."""


def cycles(
    spans: Sequence[PlannedSpan],
    alternatives: Sequence[Alternative],
    colours: Mapping[str, str],
    title: str,
) -> list[UIElement]:
    """One lane a group; where there are alternatives, a list to choose from above."""
    view = _view(spans, colours, "")
    source = ColumnDataSource(view["data"])
    plot = _plot(view, source, title)
    if not alternatives:
        return [plot]
    views = {AS_PLANNED: view}
    views |= {o.name: _view(o.spans, colours, html.escape(o.outcome)) for o in alternatives}
    outcome = Div(text="", **_WIDE)
    choice = Select(title="What if …", value=AS_PLANNED, options=list(views), **_WIDE)
    code = """
        const view = views[this.value];
        source.data = view.data;
        y_range.factors = view.groups;
        plot.height = view.height;
        outcome.text = view.outcome;
    """
    given = {
        "views": views,
        "source": source,
        "plot": plot,
        "y_range": plot.y_range,
        "outcome": outcome,
    }
    choice.js_on_change("value", CustomJS(args=given, code=code))
    return [choice, outcome, plot]


def span_columns(
    spans: Iterable[PlannedSpan], colours: Mapping[str, str]
) -> dict[str, list[object]]:
    """Bars as columns of a plot."""
    spans = list(spans)
    return {
        "group": [span.group for span in spans],
        "left": [span.start_s for span in spans],
        "right": [span.end_s for span in spans],
        "length": [span.end_s - span.start_s for span in spans],
        "job": [span.job for span in spans],
        "what": [f"switch to {s.op}" if s.is_switch else s.op for s in spans],
        "fill": [
            SWAP_COLOUR if s.is_switch else shade(colours[s.job], _function(s.op)) for s in spans
        ],
    }


def dress(plot: figure) -> None:
    """Leave out what carries no information."""
    plot.toolbar.logo = None
    plot.outline_line_color = None
    plot.grid.grid_line_alpha = 0.5


def _view(
    spans: Sequence[PlannedSpan], colours: Mapping[str, str], outcome: str
) -> dict[str, object]:
    """What the plot shows of a plan, as JSON types."""
    groups = list(dict.fromkeys(span.group for span in spans))[:MAX_GROUPS]
    shown = [span for span in spans if span.group in set(groups)]
    return {
        "data": span_columns(shown, colours),
        "groups": groups[::-1],
        "height": 90 + 34 * max(len(groups), 2),
        "outcome": outcome,
    }


def _plot(view: Mapping[str, object], source: ColumnDataSource, title: str) -> figure:
    plot = figure(
        title=title,
        height=view["height"],
        y_range=view["groups"],
        x_axis_label="seconds",
        tools="xpan,xwheel_zoom,reset,save",
        active_scroll="xwheel_zoom",
        **_WIDE,
    )
    plot.hbar(
        y="group",
        left="left",
        right="right",
        height=0.8,
        source=source,
        fill_color="fill",
        line_color="white",
        line_width=0.4,
    )
    tips = [("job", "@job"), ("op", "@what"), ("seconds", "@left{0.0} – @right{0.0}")]
    plot.add_tools(HoverTool(tooltips=tips))
    dress(plot)
    return plot


def _function(op: str) -> str:
    """``rollout.0`` and ``actor.rollout.0`` → ``rollout``."""
    return function_of(op) if op.count(".") >= 2 else op.split(".", maxsplit=1)[0]
