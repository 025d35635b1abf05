"""Picture of an iteration's graph as SVG: LLM functions in colour, everything else grey."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise

import networkx as nx
from dask.utils import key_split

_FILLS = {
    "rollout": "#3b76c4",
    "logprob": "#2a9d8f",
    "evaluate": "#7aa7d9",
    "train": "#d9822b",
    "sync": "#8e5bb5",
}
_ORDINARY_FILL = "#e4e6ea"
_BOX_WIDTH, _BOX_HEIGHT = 168, 46
_GAP_X, _GAP_Y = 56, 22
_MARGIN, _TOP = 24, 124
_LEGEND_STEP = 110
_ARROW = (
    "<defs><marker id='tip' markerUnits='userSpaceOnUse' markerWidth='9' markerHeight='8' "
    "refX='8' refY='4' orient='auto'>"
    "<path d='M0,0 L8,4 L0,8 z' fill='#6b7280'/></marker></defs>"
)
_FONT = "font-family='system-ui, sans-serif'"


@dataclass(frozen=True, slots=True)
class _Place:
    """Upper left corner of a box, in pixels."""

    x: int
    y: int


def render_svg(graph: nx.DiGraph[str], critical: Sequence[str] = (), title: str = "") -> str:
    """SVG of a graph.

    Parameters
    ----------
    graph
        Graph of `dataflow.inspect.graph_of`; must be acyclic.
    critical
        Nodes whose connecting edges are drawn bold.
    title
        Text above the picture.

    Returns
    -------
    str
        A complete SVG document that loads nothing else. Columns are topological generations, so
        every edge points to the right.
    """
    places = _layout(graph)
    width = max([place.x + _BOX_WIDTH for place in places.values()], default=0) + _MARGIN
    height = max([place.y + _BOX_HEIGHT for place in places.values()], default=_TOP) + _MARGIN
    width = max(width, _MARGIN + _LEGEND_STEP * (len(_FILLS) + 1))
    bold = set(pairwise(critical))
    head = (
        f"<svg xmlns='http://www.w3.org/2000/svg' width='{width}' height='{height}' "
        f"viewBox='0 0 {width} {height}' role='img'>"
        f"{_ARROW}<rect width='{width}' height='{height}' fill='white'/>"
        f"<text x='{_MARGIN}' y='30' {_FONT} font-size='16' font-weight='600' fill='#1f2937'>"
        f"{escape(title)}</text>"
    )
    edges = [_edge(places[a], places[b], (a, b) in bold) for a, b in graph.edges]
    boxes = [_box(graph, name, place) for name, place in places.items()]
    return "\n".join([head, *_legend(), *edges, *boxes, "</svg>"])


def _layout(graph: nx.DiGraph[str]) -> dict[str, _Place]:
    """Places of the nodes: columns are generations, rows follow the nodes they come from."""
    places: dict[str, _Place] = {}
    for column, generation in enumerate(nx.topological_generations(graph)):
        rows = sorted(generation, key=lambda name: (_barycentre(graph, name, places), name))
        for row, name in enumerate(rows):
            places[name] = _Place(
                _MARGIN + column * (_BOX_WIDTH + _GAP_X), _TOP + row * (_BOX_HEIGHT + _GAP_Y)
            )
    return places


def _barycentre(graph: nx.DiGraph[str], name: str, places: dict[str, _Place]) -> float:
    """Mean height of the nodes an item comes from."""
    heights = [places[source].y for source in graph.predecessors(name)]
    return sum(heights) / len(heights) if heights else 0.0


def _legend() -> list[str]:
    """One swatch per kind of node."""
    parts = []
    for index, (phase, fill) in enumerate([*_FILLS.items(), ("ordinary task", _ORDINARY_FILL)]):
        x = _MARGIN + _LEGEND_STEP * index
        parts.append(
            f"<rect x='{x}' y='44' width='14' height='14' rx='3' fill='{fill}'/>"
            f"<text x='{x + 20}' y='56' {_FONT} font-size='12' fill='#4b5563'>{phase}</text>"
        )
    return parts


def _edge(source: _Place, target: _Place, is_bold: bool) -> str:
    """Curve between two boxes: sideways to the next column, as an arc above over more columns."""
    columns = (target.x - source.x) // (_BOX_WIDTH + _GAP_X)
    if columns > 1:
        x1, y1 = source.x + _BOX_WIDTH // 2, source.y
        x2, y2 = target.x + _BOX_WIDTH // 2, target.y
        rise = min(y1, y2) - min(14 * (columns + 1), 56)
        curve = f"C{x1 + _GAP_X},{rise} {x2 - _GAP_X},{rise}"
    else:
        x1, y1 = source.x + _BOX_WIDTH, source.y + _BOX_HEIGHT // 2
        x2, y2 = target.x, target.y + _BOX_HEIGHT // 2
        bend = (x2 - x1) // 2
        curve = f"C{x1 + bend},{y1} {x2 - bend},{y2}"
    return (
        f"<path d='M{x1},{y1} {curve} {x2},{y2}' fill='none' stroke='#6b7280' "
        f"stroke-width='{2.4 if is_bold else 1.1}' marker-end='url(#tip)'/>"
    )


def _box(graph: nx.DiGraph[str], name: str, place: _Place) -> str:
    """One node, with its key as the hover text."""
    attributes = graph.nodes[name]
    is_llm = attributes["annotation"] is not None
    fill = _FILLS.get(attributes["phase"], _ORDINARY_FILL) if is_llm else _ORDINARY_FILL
    ink = "white" if is_llm else "#1f2937"
    heading = attributes["op"] or key_split(name)
    version = f"version {attributes['annotation']['version']}" if is_llm else attributes["phase"]
    hint = f", {attributes['hint_s']:g} s" if attributes["hint_s"] is not None else ""
    x, y = place.x + 10, place.y
    return (
        f"<g><title>{escape(name)}</title>"
        f"<rect x='{place.x}' y='{y}' width='{_BOX_WIDTH}' height='{_BOX_HEIGHT}' rx='7' "
        f"fill='{fill}'/>"
        f"<text x='{x}' y='{y + 20}' {_FONT} font-size='13' font-weight='600' fill='{ink}'>"
        f"{escape(heading[:22])}</text>"
        f"<text x='{x}' y='{y + 36}' {_FONT} font-size='11' fill='{ink}'>"
        f"{escape(version + hint)}</text></g>"
    )
