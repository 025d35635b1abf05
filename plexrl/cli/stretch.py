"""One stretch of a cluster's life, cut out of its execution log: a job alone, or all together."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from plexrl.core.states import Tier, Traffic
from plexrl.core.status import ClusterStatus
from solver.trace import IterationRecord, LeaseRecord, busy_s

_FASTEST_FIRST = tuple(Tier)


@dataclass(frozen=True, slots=True)
class Stretch:
    """The iterations of some jobs; times in seconds on the cluster's clock.

    It begins when the first function of an iteration is ready: what comes before, the start of an
    engine and the reading of a model, happens once in the life of a group, whoever comes first.
    """

    leases: tuple[LeaseRecord, ...]
    iterations: tuple[IterationRecord, ...]
    num_groups: int
    """Groups reserved for it."""
    traffic: tuple[Traffic, ...] = ()
    """Movements of states between tiers in it."""

    @property
    def started_s(self) -> float:
        """When the first function was ready."""
        return min((lease.ready_s for lease in self.leases), default=0.0)

    @property
    def ended_s(self) -> float:
        """When the last iteration was committed and the last lease given back."""
        ends = [lease.ended_s for lease in self.leases]
        return max([*ends, *(record.ended_s for record in self.iterations)], default=0.0)

    @property
    def wall_s(self) -> float:
        """Length of the stretch."""
        return self.ended_s - self.started_s

    @property
    def reserved_group_s(self) -> float:
        """Group-seconds reserved, idle time included."""
        return self.wall_s * self.num_groups

    @property
    def held_s(self) -> float:
        """Group-seconds under a lease."""
        return sum(lease.held_s for lease in self.leases)

    @property
    def busy_s(self) -> float:
        """Group-seconds under a lease, swaps left out."""
        return busy_s(self.leases)


def cut(
    leases: Iterable[LeaseRecord],
    iterations: Iterable[IterationRecord],
    jobs: Iterable[str],
    *,
    num_groups: int,
    traffic: tuple[Traffic, ...] = (),
) -> Stretch:
    """The stretch of some jobs."""
    wanted = set(jobs)
    return Stretch(
        # Attaching and exporting a model belong to no iteration.
        leases=tuple(r for r in leases if r.job in wanted and r.iteration >= 0),
        iterations=tuple(record for record in iterations if record.job in wanted),
        num_groups=num_groups,
        traffic=traffic,
    )


def mean_iteration_s(iterations: Iterable[IterationRecord], job: str) -> float | None:
    """Mean seconds of a job's iterations; None if it committed none."""
    lengths = [r.ended_s - r.started_s for r in iterations if r.job == job]
    return sum(lengths) / len(lengths) if lengths else None


def traffic_of(status: ClusterStatus) -> tuple[Traffic, ...]:
    """Movements in all groups together, per pair of tiers."""
    return _added(t for group in status.groups for t in group.traffic)


def traffic_between(before: Sequence[Traffic], after: Sequence[Traffic]) -> tuple[Traffic, ...]:
    """Movements between two moments, per pair of tiers."""
    negative = (Traffic(t.source, t.target, -t.num_moves, -t.num_bytes, -t.seconds) for t in before)
    return tuple(t for t in _added([*after, *negative]) if t.num_moves > 0)


def _added(parts: Iterable[Traffic]) -> tuple[Traffic, ...]:
    rows: dict[tuple[Tier, Tier], list[Traffic]] = defaultdict(list)
    for part in parts:
        rows[Tier(part.source), Tier(part.target)].append(part)
    return tuple(
        Traffic(
            source,
            target,
            sum(part.num_moves for part in found),
            sum(part.num_bytes for part in found),
            sum(part.seconds for part in found),
        )
        for (source, target), found in rows.items()
    )


def is_swap_in(traffic: Traffic) -> bool:
    """Whether it brings states closer to the device."""
    return _FASTEST_FIRST.index(traffic.target) < _FASTEST_FIRST.index(traffic.source)
