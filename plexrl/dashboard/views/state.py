"""The page of states: what lies in which tier, what moves, and whether anything is wrong."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import astuple, dataclass

from plexrl.core.states import Tier
from plexrl.core.status import ClusterStatus, GroupStatus
from plexrl.dashboard.tally import Tally
from solver.trace import Outcome

GROUPS_PER_PAGE = 32
"""Groups shown at once."""

STATES_SHOWN = 200
"""States listed at most; the rest is counted."""


@dataclass(frozen=True, slots=True)
class MemoryLine:
    """Host memory of a group, and its engine."""

    group: str
    used_bytes: int
    budget_bytes: int
    engine_pid: int | None
    num_engine_starts: int
    store_bytes: int
    """Of its jobs' states in the store."""
    warning: str
    draining: str


@dataclass(frozen=True, slots=True)
class Residency:
    """One state and the tiers that hold it."""

    state: str
    """``job/model@version``."""
    group: str
    tiers: tuple[Tier, ...]


@dataclass(frozen=True, slots=True)
class TrafficLine:
    """Movements between two tiers, all groups together."""

    source: Tier
    target: Tier
    num_moves: int
    num_bytes: int
    seconds: float

    @property
    def bytes_per_s(self) -> float:
        """Mean speed of a movement; 0 if nothing moved."""
        return self.num_bytes / self.seconds if self.seconds > 0 else 0.0


@dataclass(frozen=True, slots=True)
class Health:
    """Counters that are 0 while all is well."""

    num_plugin_errors: int
    num_failed_leases: int
    num_lost_leases: int
    num_engine_restarts: int
    num_damaged: int
    """Versions read from the store that did not match their checksums."""
    num_failed_writes: int
    """Attempts to write to the store; each was repeated."""
    num_warnings: int
    """Groups with a trouble that goes on."""

    @property
    def is_good(self) -> bool:
        """Whether all are 0."""
        return not any(astuple(self))


def memory_lines(groups: Iterable[GroupStatus]) -> list[MemoryLine]:
    """Host memory of groups."""
    return [
        MemoryLine(
            group.name,
            group.host_used_bytes,
            group.host_budget_bytes,
            group.engine_pid,
            group.num_engine_starts,
            group.store.num_bytes,
            group.warning,
            group.draining,
        )
        for group in groups
    ]


def residencies(groups: Iterable[GroupStatus]) -> list[Residency]:
    """States in any tier of these groups, by name."""
    found: list[Residency] = []
    for group in groups:
        tiers: dict[str, list[Tier]] = {}
        for tier in Tier:
            for state in group.resident.get(tier, ()):
                tiers.setdefault(state, []).append(tier)
        found += [Residency(state, group.name, tuple(held)) for state, held in tiers.items()]
    return sorted(found, key=lambda residency: residency.state)


def traffic_lines(groups: Iterable[GroupStatus]) -> list[TrafficLine]:
    """Movements between tiers, all groups together, most bytes first."""
    totals: dict[tuple[Tier, Tier], list[float]] = {}
    for group in groups:
        for moved in group.traffic:
            total = totals.setdefault((moved.source, moved.target), [0, 0, 0.0])
            total[0] += moved.num_moves
            total[1] += moved.num_bytes
            total[2] += moved.seconds
    lines = [
        TrafficLine(source, target, int(moves), int(num_bytes), seconds)
        for (source, target), (moves, num_bytes, seconds) in totals.items()
        if moves
    ]
    return sorted(lines, key=lambda line: -line.num_bytes)


def health(status: ClusterStatus, tally: Tally) -> Health:
    """The counters an operator watches."""
    return Health(
        num_plugin_errors=status.num_errors,
        num_failed_leases=tally.outcomes[Outcome.FAILED],
        num_lost_leases=tally.outcomes[Outcome.LOST],
        num_engine_restarts=sum(group.num_engine_restarts for group in status.groups),
        num_damaged=sum(group.store.num_damaged for group in status.groups),
        num_failed_writes=sum(group.store.num_failed_writes for group in status.groups),
        num_warnings=sum(1 for group in status.groups if group.warning),
    )
