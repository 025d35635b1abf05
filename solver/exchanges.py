"""Exchanges between two sets of jobs: what is one move away from a choice of whole sets.

The linear master prices sets as if each could be taken in part. A choice takes them whole, and the
sets it would need beside each other are rarely among those that were priced: they are found by
changing two chosen sets at once, so that each job stays served once.
"""

from __future__ import annotations

from collections.abc import Iterator

Ids = tuple[int, ...]
"""Jobs by index, ascending."""


def exchanges(one: Ids, other: Ids, most: int) -> Iterator[tuple[Ids, Ids]]:
    """What two sets become when a job moves over, or two jobs change places.

    Parameters
    ----------
    one, other
        The sets, without a job in common.
    most
        Most jobs of a set.
    """
    for here, there in ((one, other), (other, one)):
        if len(there) < most:
            for job in here:
                yield _without(here, job), _with(there, job)
    for mine in one:
        for yours in other:
            yield _with(_without(one, mine), yours), _with(_without(other, yours), mine)


def _without(ids: Ids, job: int) -> Ids:
    return tuple(i for i in ids if i != job)


def _with(ids: Ids, job: int) -> Ids:
    return tuple(sorted((*ids, job)))
