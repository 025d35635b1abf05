"""Functions over several groups: when they, and what follows them, may be sent to a worker."""

from __future__ import annotations

from solver.dispatch.arbiter import Arbiter


def is_granted(arbiter: Arbiter, function_id: str, groups: tuple[str, ...]) -> bool:
    """Whether the arbiter still grants a function its groups: it was not withdrawn."""
    leases = [arbiter.holder(groups[0]), arbiter.ahead(groups[0])]
    return any(lease is not None and lease.function.id == function_id for lease in leases)


def must_wait(arbiter: Arbiter, function_id: str, groups: tuple[str, ...]) -> bool:
    """Whether an admitted function may not be sent to its worker yet.

    A gang is sent once it holds all its groups, and what follows a gang once that has ended: a
    worker knows of its own queue only, so two gangs could wait there for each other.
    """
    holders = [arbiter.holder(group) for group in groups]
    if all(lease is not None and lease.function.id == function_id for lease in holders):
        return False
    return len(groups) > 1 or any(
        lease is not None and len(lease.function.groups) > 1 for lease in holders
    )
