"""Why no plan of several pools exists: what every schedule needs and the pools do not have."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from solver.arrangements import Arrangement, Market
from solver.cellvalue import demands
from solver.explain import describe_bytes
from solver.seating import Names
from solver.workloads import Role, Workload

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
            if needed > len(names[Role.ROLLOUT]):
                yield (
                    f"the jobs need {needed} {Role.ROLLOUT} groups of their own; there are "
                    f"{len(names[Role.ROLLOUT])}"
                )
    for role, roles in shared.items():
        yield from _of_pool(market, jobs, role, roles, len(names[role]))


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
