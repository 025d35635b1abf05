"""What a plan's groups do, pool by pool, and on choice under plans for what could be otherwise."""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bokeh.models import ColumnDataSource, CustomJS, DataRange1d, Div, HoverTool, Select, UIElement
from bokeh.plotting import figure

from plexrl.dashboard.lanes import function_of
from plexrl.dashboard.palette import SWAP_COLOUR, shade

MAX_GROUPS = 60
"""Groups drawn at most: more lanes than fit on any screen help nobody."""
AS_PLANNED = "as planned"
LETTER_PIXELS, MARGIN_PIXELS = 6, 24
"""About what a letter of a group's name takes, and what stands beside names."""
_WIDE = {"sizing_mode": "stretch_width"}


@dataclass(frozen=True, slots=True)
class PlannedSpan:
    """One bar of a group's lane."""

    group: str
    job: str
    op: str
    start_s: float
    end_s: float
    is_switch: bool
    pool: str = ""
    """Pool that its group is shown under."""


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
    titles: Mapping[str, str],
) -> list[UIElement]:
    """One lane a group; where there are alternatives, a list to choose from above.

    Parameters
    ----------
    spans
        Of the plan.
    alternatives
        Other plans.
    colours
        Job → colour.
    titles
        Pool → what stands above its lanes.
    """
    views = {AS_PLANNED: _views(spans, colours, titles)}
    views |= {other.name: _views(other.spans, colours, titles) for other in alternatives}
    sources = [ColumnDataSource(view["data"]) for view in views[AS_PLANNED]]
    plots = [_plot(view, src) for view, src in zip(views[AS_PLANNED], sources, strict=True)]
    # Lanes of all pools begin at the same place, however long their names are.
    longest = max((len(group) for view in views[AS_PLANNED] for group in view["groups"]), default=0)
    for plot in plots:
        plot.min_border_left = LETTER_PIXELS * longest + MARGIN_PIXELS
        plot.x_range = plots[0].x_range
    if not alternatives:
        return [*plots]
    outcome = Div(text="", **_WIDE)
    choice = Select(title="What if …", value=AS_PLANNED, options=list(views), **_WIDE)
    code = """
        views[this.value].forEach((view, at) => {
            sources[at].data = view.data;
            plots[at].y_range.factors = view.groups;
            plots[at].height = view.height;
            plots[at].title.text = view.title;
        });
        outcome.text = outcomes[this.value];
    """
    given = {
        "views": views,
        "sources": sources,
        "plots": plots,
        "outcome": outcome,
        "outcomes": {AS_PLANNED: "", **{o.name: html.escape(o.outcome) for o in alternatives}},
    }
    choice.js_on_change("value", CustomJS(args=given, code=code))
    return [choice, outcome, *plots]


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


def _views(
    spans: Sequence[PlannedSpan], colours: Mapping[str, str], titles: Mapping[str, str]
) -> list[dict[str, Any]]:
    """What each pool's plot shows of a plan, as JSON types."""
    return [
        _view([span for span in spans if span.pool == pool], colours, title)
        for pool, title in titles.items()
    ]


def _view(spans: Sequence[PlannedSpan], colours: Mapping[str, str], title: str) -> dict[str, Any]:
    every = list(dict.fromkeys(span.group for span in spans))
    groups = every[:MAX_GROUPS]
    shown = [span for span in spans if span.group in set(groups)]
    return {
        "data": span_columns(shown, colours),
        "groups": groups[::-1],
        "height": 90 + 34 * max(len(groups), 2),
        "title": title if groups == every else f"{title} ({len(groups)} of {len(every)} groups)",
    }


def _plot(view: Mapping[str, Any], source: ColumnDataSource) -> figure:
    plot = figure(
        title=view["title"],
        height=view["height"],
        x_range=DataRange1d(range_padding=0.01),
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
