"""Why no plan of several pools exists: what every schedule needs and the pools do not have."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import networkx as nx

from solver.arrangements import Arrangement, Market
from solver.cellvalue import demands
from solver.explain import describe_bytes, name_jobs
from solver.seating import Names
from solver.workloads import Role, Workload

MAX_STARTS = 10
"""Jobs from which others are sought that no two of which may share a group."""
EXACT = 1e-9
"""Slack of sums of shares: as far as they may be off by rounding."""


def explain_pools(market: Market, jobs: Sequence[Workload], names: Names) -> str:
    """Say what the groups lack; every reason is a proof. "" if none was found.

    Parameters
    ----------
    market
        Arrangement, memory and places of a group.
    jobs
        The jobs, all of which are to be served within their limits.
    names
        Role → the groups there are for it.
    """
    return next(_reasons(market, jobs, names), "")


def _reasons(market: Market, jobs: Sequence[Workload], names: Names) -> Iterator[str]:
    shared: dict[Role, tuple[Role, ...]] = {Role.TRAIN: (Role.TRAIN,)}
    match market.arrangement:
        case Arrangement.COLOCATED:
            shared = {Role.TRAIN: (Role.TRAIN, Role.ROLLOUT)}
        case Arrangement.SPLIT:
            shared[Role.ROLLOUT] = (Role.ROLLOUT,)
        case Arrangement.PRIVATE_ROLLOUT:
            needed = sum(job.rollout_width for job in jobs)
            yield from _pinned_alike(jobs)
            if needed > len(names[Role.ROLLOUT]):
                yield (
                    f"the jobs need {needed} {Role.ROLLOUT} groups of their own; there are "
                    f"{len(names[Role.ROLLOUT])}"
                )
    for role, roles in shared.items():
        yield from _of_pool(market, jobs, role, roles, len(names[role]))
        yield from _kept_apart(market, jobs, role, len(names[role]))
        yield from _pinned(market, jobs, role, roles)


def _of_pool(
    market: Market, jobs: Sequence[Workload], role: Role, roles: Sequence[Role], count: int
) -> Iterator[str]:
    memory = market.memory_for(role)
    needed = sum(job.width(role) * job.bytes_for(role) for job in jobs)
    if memory is not None and needed > count * memory:
        yield (
            f"the states of the jobs take {describe_bytes(needed)} on {role} groups; the {count} "
            f"there are have {describe_bytes(count * memory)}"
        )
    seats = sum(job.width(role) for job in jobs)
    if seats > count * market.max_jobs:
        yield (
            f"the jobs need {seats} places on {role} groups; the {count} there are have "
            f"{market.max_jobs} each"
        )
    busy = sum(d.share * d.least for d in demands(market, jobs, roles))
    if busy > count + EXACT:
        yield (
            f"even as slow as their limits allow the jobs keep {busy:.2f} {role} groups busy; "
            f"there are {count}"
        )


def _kept_apart(market: Market, jobs: Sequence[Workload], role: Role, count: int) -> Iterator[str]:
    """Jobs no two of which may share a group, more than there are groups for."""
    by_name = {job.name: job for job in jobs}
    graph: nx.Graph[str] = nx.Graph()
    for one, other in (pair for pair in market.apart if pair <= by_name.keys()):
        graph.add_edge(one, other)
    ranks = {
        name: rank for rank, name in enumerate(sorted(graph, key=lambda n: (-graph.degree(n), n)))
    }
    for first in list(ranks)[:MAX_STARTS]:
        apart, others = [first], set(graph[first])
        while others:
            apart.append(min(others, key=ranks.__getitem__))
            others &= set(graph[apart[-1]])
        needed = sum(by_name[name].width(role) for name in apart)
        if needed > count:
            yield (
                f"the jobs {', '.join(sorted(apart))} are to be kept apart and need {needed} "
                f"{role} groups; there are {count}"
            )
            return


def _pinned_alike(jobs: Sequence[Workload]) -> Iterator[str]:
    """Jobs pinned to one group of the pool of which every job has groups of its own."""
    for group, here in _by_pin(jobs, Role.ROLLOUT).items():
        if len(here) > 1:
            yield (
                f"{name_jobs(job.name for job in here)} are pinned to group {group}; it is of the "
                "pool of which every job has groups of its own"
            )


def _pinned(
    market: Market, jobs: Sequence[Workload], role: Role, roles: Sequence[Role]
) -> Iterator[str]:
    """What a group cannot give those that are pinned to it."""
    memory = market.memory_for(role)
    for group, here in _by_pin(jobs, role).items():
        who = f"{name_jobs(job.name for job in here)} are pinned to group {group}"
        needed = sum(job.bytes_for(role) for job in here)
        if memory is not None and needed > memory:
            yield (
                f"{who} and need {describe_bytes(needed)} there; it has {describe_bytes(memory)}"
            )
        if len(here) > market.max_jobs:
            yield f"{who}, which may carry {market.max_jobs}"
        if market.separates(here):
            yield f"{who}, though some of them are to be kept apart"
        shares = zip(here, demands(market, here, roles), strict=True)
        busy = sum(demand.share * demand.least / job.width(role) for job, demand in shares)
        if busy > 1 + EXACT:
            yield f"{who} and keep it {busy:.0%} busy even as slow as their limits allow"


def _by_pin(jobs: Sequence[Workload], role: Role) -> dict[str, list[Workload]]:
    found: dict[str, list[Workload]] = {}
    for job in jobs:
        for group in job.pinned.of(role):
            found.setdefault(group, []).append(job)
    return found
