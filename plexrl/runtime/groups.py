"""The groups the scheduler knows: their workers, and what their services last said."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from plexrl.core.states import Tier
from plexrl.planning.planner import STATE_BYTES_S
from plexrl.services.reports import LeaseEnded, ServiceSnapshot


@dataclass(slots=True, eq=False)
class GroupRow:
    """One group."""

    worker: str
    """Address of its Dask worker."""
    budget_bytes: int
    """Host memory it has for states."""
    snapshot: ServiceSnapshot = field(default_factory=ServiceSnapshot)
    busy_s: float = 0.0
    """Seconds of leases so far."""


class GroupTable:
    """Groups by name; one that lost its worker is gone until it has another."""

    def __init__(self) -> None:
        self._rows: dict[str, GroupRow] = {}
        self._of_worker: dict[str, dict[str, None]] = {}
        self._lost_s: dict[str, float] = {}
        self._closed: dict[str, str] = {}

    def add(self, name: str, worker: str, budget_bytes: int) -> None:
        """Note a group whose worker joined."""
        self._rows[name] = GroupRow(worker, budget_bytes)
        self._of_worker.setdefault(worker, {})[name] = None
        self._lost_s.pop(name, None)

    def remove(self, name: str, now_s: float) -> None:
        """Note that a group's worker is gone."""
        row = self._rows.pop(name, None)
        if row is not None:
            self._lost_s[name] = now_s
            here = self._of_worker[row.worker]
            del here[name]
            if not here:
                del self._of_worker[row.worker]

    def close(self, name: str, reason: str) -> None:
        """Let no job begin an iteration on a group, also after it lost its worker and returned."""
        self._closed[name] = reason

    def open(self, name: str) -> None:
        """Let jobs begin iterations on a group again."""
        self._closed.pop(name, None)

    def why_closed(self, name: str) -> str | None:
        """Why a group is closed; None if it is open."""
        return self._closed.get(name)

    def are_open(self, names: Iterable[str]) -> bool:
        """Whether all these groups have a worker and take jobs."""
        return all(name in self._rows and name not in self._closed for name in names)

    def gone_for_s(self, name: str, now_s: float) -> float:
        """Seconds since a group lost its worker; 0 while it has one."""
        return now_s - self._lost_s.get(name, now_s)

    def is_any_gone(self) -> bool:
        """Whether a group that was here has no worker now."""
        return bool(self._lost_s)

    def get(self, name: str) -> GroupRow | None:
        """A group; None while it has no worker."""
        return self._rows.get(name)

    def names(self) -> tuple[str, ...]:
        """Groups that have a worker."""
        return tuple(self._rows)

    def of_worker(self, worker: str) -> tuple[str, ...]:
        """Groups of one worker."""
        return tuple(self._of_worker.get(worker, ()))

    def largest_budget_bytes(self) -> int:
        """Most host memory any group has; 0 without groups."""
        return max((row.budget_bytes for row in self._rows.values()), default=0)

    def note_snapshot(self, group: str, snapshot: ServiceSnapshot) -> None:
        """Take how a service stands."""
        row = self._rows.get(group)
        if row is not None:
            row.snapshot = snapshot

    def state_bytes_s(self) -> float:
        """How fast states have moved between host memory and the store, in bytes a second."""
        moves = [
            traffic
            for row in self._rows.values()
            for traffic in row.snapshot.traffic
            if Tier.STORE in {traffic.source, traffic.target}
        ]
        seconds = sum(traffic.seconds for traffic in moves)
        return sum(traffic.num_bytes for traffic in moves) / seconds if seconds else STATE_BYTES_S

    def note(self, report: LeaseEnded, groups: Iterable[str]) -> None:
        """Take what a service said at the end of a lease of these groups."""
        row = self._rows.get(report.group)
        if row is not None:
            row.snapshot = report.snapshot
        for name in {report.group, *groups}:
            held = self._rows.get(name)
            if held is not None:
                held.busy_s += report.ended_s - report.started_s
