"""Jobs that are pinned to the same groups: they meet there, whatever else is planned."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace

import networkx as nx

from solver.arrangements import Market
from solver.cellvalue import Effort, Sizing, Value, alone, holds, look_longer, options
from solver.errors import PlanError
from solver.scoring import Dispatch
from solver.workloads import Workload

Bundle = tuple[Workload, ...]
"""Jobs that are in one cell with each other: mostly a single one."""


def bundles(market: Market, jobs: Iterable[Workload]) -> tuple[Bundle, ...]:
    """The jobs, those together that pins put on the same shared groups, by length.

    Parameters
    ----------
    market
        Says which groups jobs may share.
    jobs
        The jobs.
    """
    by_name = {job.name: job for job in jobs}
    graph: nx.Graph[tuple[str, str]] = nx.Graph()
    for job in by_name.values():
        graph.add_node(("job", job.name))
        for role in market.shared:
            graph.add_edges_from((("job", job.name), (role, pin)) for pin in job.pinned.of(role))
    found = []
    for part in nx.connected_components(graph):
        here = (by_name[name] for kind, name in part if kind == "job")
        found.append(tuple(sorted(here, key=_length)))
    return tuple(sorted(found, key=lambda bundle: _length(bundle[-1])))


def least_cell(sizing: Sizing, bundle: Bundle, dispatch: Dispatch, *, is_brief: bool) -> Value:
    """The best cell for exactly these jobs, which a plan falls back on.

    A job alone has groups of its own. Several keep their limits in simulation, with a margin if
    that can be.

    Parameters
    ----------
    sizing
        The search that it is for; cells that fail the confirmation are banned there.
    bundle
        The jobs.
    dispatch
        Plan and rule that the cell will run under.
    is_brief
        Whether there is no time to confirm it.

    Raises
    ------
    PlanError
        No number of groups serves the jobs within their limits.
    """
    if len(bundle) == 1:
        return alone(sizing.market, bundle[0])
    while (value := sizing.best(bundle, math.inf)) is not None:
        if is_brief or _is_confirmed(value, sizing.effort, dispatch):
            return value
        sizing.ban(value.cell)
    # Whoever pins jobs together wants them there even where that is tight.
    tight = replace(sizing.effort, margin=0.0)
    for value in _by_worth(sizing, bundle, tight):
        if is_brief or _is_confirmed(value, tight, dispatch):
            return value
    raise PlanError(
        f"jobs {', '.join(sorted(job.name for job in bundle))} are pinned to groups that they "
        "share, and do not keep their limits there in simulation; pin fewer of them, or raise "
        "their slowdown limits"
    )


def _by_worth(sizing: Sizing, bundle: Bundle, effort: Effort) -> Iterable[Value]:
    found = (option.value(sizing.market, effort) for option in options(sizing.market, bundle))
    values = (value for value in found if value is not None)
    return sorted(values, key=lambda value: value.reduced(sizing.theta))


def _is_confirmed(value: Value, effort: Effort, dispatch: Dispatch) -> bool:
    longer = look_longer(value.cell, effort)
    return longer is not None and holds(value.cell, dispatch, effort)


def _length(job: Workload) -> tuple[float, str]:
    return job.mean_s, job.name
