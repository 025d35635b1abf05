"""Looks at the graph of an iteration: as a networkx DAG, its critical path, a picture."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import networkx as nx
from dask.core import get_dependencies
from dask.delayed import Delayed
from dask.highlevelgraph import HighLevelGraph
from dask.utils import key_split

from dataflow.annotations import ANNOTATION, read_annotation
from dataflow.errors import CycleError, DataError
from dataflow.phases import Phase
from dataflow.picture import render_svg

TASK = "task"
"""Phase attribute of nodes that are no phase: data, item access, a user's own functions."""

_ORDINARY_PHASES = {str(phase) for phase in Phase if not phase.is_llm}


@dataclass(frozen=True, slots=True)
class CriticalPath:
    """Longest chain of nodes, each waiting for the one before."""

    nodes: tuple[str, ...]
    """Node names, first to last."""
    seconds: float
    """Sum of the weights along it."""


def graph_of(nodes: Delayed | Iterable[Delayed]) -> nx.DiGraph[str]:
    """Graph behind Dask nodes.

    Parameters
    ----------
    nodes
        One node or several.

    Returns
    -------
    networkx.DiGraph
        A node per task, named by its key, with the attributes ``phase`` (a phase or ``"task"``),
        ``op`` (for LLM functions, else empty), ``annotation`` (None for ordinary tasks) and
        ``hint_s`` (None where unknown). Edges run from input to user. Futures and other keys
        that the graph does not compute are left out.
    """
    tasks: dict[object, object] = {}
    annotations: dict[object, Mapping[str, object]] = {}
    for node in [nodes] if isinstance(nodes, Delayed) else nodes:
        _collect(node, tasks, annotations)
    graph: nx.DiGraph[str] = nx.DiGraph()
    for key in tasks:
        annotation = annotations.get(key)
        phase = _phase_of(key, annotation)
        graph.add_node(
            str(key),
            phase=phase,
            op=str(annotation["op"]) if annotation else "",
            annotation=annotation,
            hint_s=annotation["hint_s"] if annotation else None,
        )
    for key in tasks:
        for source in get_dependencies(tasks, key):
            graph.add_edge(str(source), str(key))
    return graph


def require_acyclic(graph: nx.DiGraph[str], job: str) -> None:
    """Raise unless the graph has no cycle.

    Raises
    ------
    CycleError
        The graph has one; the message names its nodes in order.
    """
    if nx.is_directed_acyclic_graph(graph):
        return
    cycle = [source for source, _ in nx.find_cycle(graph)]
    chain = " → ".join([*cycle, cycle[0]])
    raise CycleError(
        f"the graph of job {job!r} has a cycle: {chain}; a node may only use nodes built before "
        "it (is one dask_key_name given to two nodes?)"
    )


def critical_path(graph: nx.DiGraph[str], default_s: float = 1.0) -> CriticalPath:
    """Longest path of a graph by expected seconds.

    Parameters
    ----------
    graph
        Graph of `graph_of`; must be acyclic.
    default_s
        Seconds of an LLM function without a hint. Ordinary tasks weigh nothing.

    Returns
    -------
    CriticalPath
        Empty for an empty graph.
    """
    if not graph:
        return CriticalPath((), 0.0)
    best: dict[str, tuple[float, int]] = {}
    came_from: dict[str, str | None] = {}
    for name in nx.lexicographical_topological_sort(graph):
        sources = sorted(graph.predecessors(name))
        source = max(sources, key=lambda key: best[key], default=None)
        seconds, length = best[source] if source is not None else (0.0, 0)
        best[name] = (seconds + _weight(graph, name, default_s), length + 1)
        came_from[name] = source
    last = max(sorted(best), key=lambda key: best[key])
    path = [last]
    while (source := came_from[path[-1]]) is not None:
        path.append(source)
    return CriticalPath(tuple(reversed(path)), best[last][0])


def llm_nodes(graph: nx.DiGraph[str], names: Sequence[str] | None = None) -> list[str]:
    """Names of the LLM functions among `names` (default: all, in topological order)."""
    ordered = nx.lexicographical_topological_sort(graph) if names is None else names
    return [name for name in ordered if graph.nodes[name]["annotation"] is not None]


def draw(nodes: Delayed | Iterable[Delayed], path: str | Path, title: str = "") -> Path:
    """Draw the graph behind Dask nodes into a self-contained file.

    Parameters
    ----------
    nodes
        One node or several.
    path
        File to write; ``.svg`` or ``.html``.
    title
        Text above the picture.

    Returns
    -------
    Path
        The file.

    Raises
    ------
    DataError
        The file name has another ending.
    CycleError
        The graph is not acyclic.
    """
    target = Path(path)
    if target.suffix not in {".svg", ".html"}:
        raise DataError(f"picture {target} ends in {target.suffix!r}; give a .svg or .html file")
    graph = graph_of(nodes)
    require_acyclic(graph, title or "to be drawn")
    picture = render_svg(graph, critical_path(graph).nodes, title)
    if target.suffix == ".html":
        picture = f"<!doctype html><meta charset='utf-8'><title>{title}</title>{picture}"
    target.write_text(picture, encoding="utf-8")
    return target


def _weight(graph: nx.DiGraph[str], name: str, default_s: float) -> float:
    """Expected seconds of one node."""
    attributes = graph.nodes[name]
    if attributes["annotation"] is None:
        return 0.0
    return default_s if attributes["hint_s"] is None else float(attributes["hint_s"])


def _collect(
    node: Delayed, tasks: dict[object, object], annotations: dict[object, Mapping[str, object]]
) -> None:
    """Add the tasks behind a node and their annotations."""
    layers = node.__dask_graph__()
    if not isinstance(layers, HighLevelGraph):
        tasks.update(layers)
        return
    for layer in layers.layers.values():
        tasks.update(layer)
        found = (layer.annotations or {}).get(ANNOTATION)
        for key in layer if found is not None else ():
            value = found(key) if callable(found) else found
            annotation = read_annotation({ANNOTATION: value}) if value else None
            if annotation is not None:
                annotations[key] = annotation


def _phase_of(key: object, annotation: Mapping[str, object] | None) -> str:
    """Phase of a node: from its annotation, else from the first word of its key."""
    if annotation is not None:
        return str(annotation["function"])
    word = key_split(key)
    return word if word in _ORDINARY_PHASES else TASK
