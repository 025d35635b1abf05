"""The execution log while it is being written: one entry per LLM function, from known to ended."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace
from itertools import islice

from plexrl.services.reports import LeaseEnded
from solver.trace import LeaseRecord, Outcome

MAX_LEASES = 200_000
"""Finished leases kept in memory, about 100 MB: days of a busy cluster; older ones are dropped."""


@dataclass(frozen=True, slots=True)
class FunctionEntry:
    """One LLM function the scheduler knows."""

    id: str
    job: str
    model: str
    op: str
    iteration: int
    version: int
    hint_s: float | None
    is_yieldable: bool = False
    """Whether it can give its lease up in the middle."""
    served_s: float = 0.0
    """Seconds it has computed in leases it yielded."""
    served_on: str = ""
    """Group that keeps what it computed in them; empty if it never yielded."""
    groups: tuple[str, ...] = ()
    """Groups it was admitted to, the one it runs on first; empty before."""
    ready_s: float | None = None
    """When its inputs were there; seconds of the system clock, as all times here."""
    started_s: float | None = None
    """When its lease began; None while it holds none."""
    is_forgotten: bool = False
    """Whether the scheduler dropped it while it held its lease."""


class Ledger:
    """Live functions and finished leases."""

    def __init__(self, epoch_s: float) -> None:
        self._epoch_s = epoch_s
        self._live: dict[str, FunctionEntry] = {}
        self._leases: deque[LeaseRecord] = deque(maxlen=MAX_LEASES)
        self.num_ended = 0
        """Leases that ended so far, those dropped from memory included."""

    def __contains__(self, function_id: str) -> bool:
        return function_id in self._live

    def __getitem__(self, function_id: str) -> FunctionEntry:
        return self._live[function_id]

    def know(self, entry: FunctionEntry) -> None:
        """Add a function that entered the scheduler."""
        self._live[entry.id] = entry

    def ready(self, function_id: str, at_s: float) -> None:
        """Note that its inputs are there."""
        self._live[function_id] = replace(self._live[function_id], ready_s=at_s, started_s=None)

    def withdrawn(self, function_id: str) -> None:
        """Note that it waits for a lease no more."""
        entry = self._live.get(function_id)
        if entry is not None:
            self._live[function_id] = replace(entry, ready_s=None, groups=())

    def admitted(self, function_id: str, groups: tuple[str, ...]) -> None:
        """Note where it was sent, and what it holds."""
        self._live[function_id] = replace(self._live[function_id], groups=groups)

    def started(self, function_id: str, at_s: float) -> None:
        """Note that its lease began."""
        self._live[function_id] = replace(self._live[function_id], started_s=at_s)

    def groups_of(self, function_id: str) -> tuple[str, ...]:
        """Groups a function was admitted to; empty if it holds no place on any."""
        entry = self._live.get(function_id)
        return () if entry is None else entry.groups

    def may_withdraw(self, function_id: str) -> bool:
        """Whether a function waits for its lease, so that taking it back ends its life."""
        entry = self._live.get(function_id)
        return entry is not None and entry.ready_s is not None and entry.started_s is None

    def ended(self, report: LeaseEnded) -> LeaseRecord | None:
        """Turn a report into a record; None for a function whose group was lost meanwhile.

        A gang has a record for each of its groups; that of the one it ran on is returned.
        """
        entry = self._live.get(report.id)
        if entry is None or entry.started_s is None:
            return None
        outcome = report.outcome
        if outcome is Outcome.YIELDED and entry.is_forgotten:
            # It was stopped because nobody wants the rest of it.
            outcome = Outcome.CANCELLED
        record = self._record(
            entry,
            report.group,
            report.started_s,
            report.ended_s,
            (report.swap_s, str(report.swap_source), report.swap_bytes),
            outcome,
            report.ahead_s,
        )
        if outcome is Outcome.YIELDED:
            self._leave(entry, entry.served_s + max(record.busy_s, 0.0), report.group)
        else:
            self._leave(entry)
        self._keep(record)
        for group in entry.groups:
            if group != report.group:
                self._keep(replace(record, group=group, swap_bytes=0, ahead_s=0.0))
        return record

    def lost(self, group: str, at_s: float) -> tuple[str, ...]:
        """Close the leases that ran on a group that is gone.

        Returns
        -------
        tuple of str
            Functions that wait to go on there, which they need not any more: what they had
            computed is gone.
        """
        for entry in [e for e in self._live.values() if group in e.groups]:
            if entry.started_s is not None:
                self._keep(
                    self._record(
                        entry, group, entry.started_s, at_s, (0.0, "device", 0), Outcome.LOST
                    )
                )
            self._leave(entry)
        unbound = [entry for entry in self._live.values() if entry.served_on == group]
        for entry in unbound:
            self._live[entry.id] = replace(entry, served_s=0.0, served_on="")
        return tuple(entry.id for entry in unbound if entry.ready_s is not None)

    def forget(self, function_id: str) -> None:
        """Drop a function that left the scheduler; one that holds its lease, when that ends."""
        entry = self._live.get(function_id)
        if entry is not None and entry.started_s is not None:
            self._live[function_id] = replace(entry, is_forgotten=True)
        else:
            self._live.pop(function_id, None)

    def _leave(self, entry: FunctionEntry, served_s: float = 0.0, served_on: str = "") -> None:
        """Note that a function holds no lease any more."""
        if entry.is_forgotten:
            del self._live[entry.id]
        else:
            self._live[entry.id] = replace(
                entry,
                groups=(),
                ready_s=None,
                started_s=None,
                served_s=served_s,
                served_on=served_on,
            )

    def leases(self, first: int = 0) -> tuple[LeaseRecord, ...]:
        """Finished leases from the given index on, in order of their end.

        Parameters
        ----------
        first
            Counts all leases since the start; those dropped from memory are left out.
        """
        wanted = min(len(self._leases), max(0, self.num_ended - first))
        newest = list(islice(reversed(self._leases), wanted))
        return tuple(reversed(newest))

    def _keep(self, record: LeaseRecord) -> None:
        self._leases.append(record)
        self.num_ended += 1

    def _record(
        self,
        entry: FunctionEntry,
        group: str,
        started_s: float,
        ended_s: float,
        swap: tuple[float, str, int],
        outcome: Outcome,
        ahead_s: float = 0.0,
    ) -> LeaseRecord:
        epoch = self._epoch_s
        ready_s = started_s if entry.ready_s is None else entry.ready_s
        return LeaseRecord(
            id=entry.id,
            job=entry.job,
            model=entry.model,
            op=entry.op,
            iteration=entry.iteration,
            version=entry.version,
            group=group,
            ready_s=ready_s - epoch,
            started_s=started_s - epoch,
            ended_s=ended_s - epoch,
            swap_s=swap[0],
            swap_source=swap[1],
            swap_bytes=swap[2],
            outcome=outcome,
            ahead_s=ahead_s,
        )
