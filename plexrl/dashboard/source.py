"""Where pages and metrics get their numbers: one reading shared by all who look.

However many browsers are open, the scheduler's tables are read at most twice a second, and each
finished lease is counted once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from plexrl.core.status import ClusterStatus
from plexrl.dashboard.lanes import AdoptedPlan, adopted_plan
from plexrl.dashboard.tally import Tally
from plexrl.dashboard.views.plan import SOLVES_SHOWN, SolveLog
from solver.trace import IterationRecord, LeaseRecord

REFRESH_S = 0.5
"""Seconds between readings: two a second look alive and leave the scheduler alone."""

MANY = 128
"""Jobs and groups from which on a reading, which costs with each of them, is made half as often."""

MAX_BATCH = 20_000
"""Leases counted in one reading: some 40 ms, so that the first look at an old cluster does not
hold the scheduler up."""

MAX_PLANS = 64
"""Plans in force remembered for the planned lanes: at the usual period ten minutes."""


class Source(Protocol):
    """What is known of a cluster; `plexrl.runtime.view.ClusterView` on a scheduler."""

    def now_s(self) -> float:
        """Seconds since the cluster's clock began."""
        ...

    def status(self) -> ClusterStatus:
        """The cluster as it stands."""
        ...

    def num_leases(self) -> int:
        """Leases that ended so far."""
        ...

    def leases(self, first: int) -> Sequence[LeaseRecord]:
        """Finished leases from the given index on, in order of their end, as far as remembered."""
        ...

    def iterations(self, job: str) -> Sequence[IterationRecord]:
        """Committed iterations of a job, in order."""
        ...

    def plan(self, newest: int | None = None) -> Mapping[str, object]:
        """The plan in force and the history of solves, or so many of the newest, as JSON types."""
        ...

    def num_solves(self) -> int:
        """Solves so far."""
        ...

    def solves(self, first: int, most: int) -> Sequence[Mapping[str, object]]:
        """Solves from the given index on, at most so many of the newest, as JSON types."""
        ...


@dataclass(frozen=True, slots=True)
class Reading:
    """One look at the cluster."""

    number: int
    """Counts readings; a page that has drawn this one need not draw it again."""
    status: ClusterStatus
    tally: Tally
    """Totals over all leases so far; grows in place."""


class Cockpit:
    """Reads a source on behalf of all pages of one scheduler.

    Parameters
    ----------
    source
        Where the numbers come from.
    """

    def __init__(self, source: Source) -> None:
        self._source = source
        self._tally = Tally()
        self._plans: deque[AdoptedPlan] = deque(maxlen=MAX_PLANS)
        self._solves = SolveLog()
        self._solves_read = 0
        self._reading: Reading | None = None
        self._num_seen = 0

    def read(self) -> Reading:
        """The newest reading, at most `REFRESH_S` old, of a large cluster twice that."""
        last = self._reading
        if last is not None and self._is_fresh(last.status):
            return last
        status = self._source.status()
        self._catch_up()
        self._note_plan(status)
        number = 1 if last is None else last.number + 1
        self._reading = Reading(number, status, self._tally)
        return self._reading

    def _is_fresh(self, status: ClusterStatus) -> bool:
        is_large = len(status.jobs) + len(status.groups) >= MANY
        lasts_s = REFRESH_S * (2 if is_large else 1)
        return 0 <= self._source.now_s() - status.now_s < 0.9 * lasts_s

    def now_s(self) -> float:
        """Seconds since the cluster's clock began."""
        return self._source.now_s()

    def plans(self) -> tuple[AdoptedPlan, ...]:
        """Plans seen in force, oldest first."""
        return tuple(self._plans)

    def plan(self) -> Mapping[str, object]:
        """The plan in force and the history of solves, as JSON types."""
        return self._source.plan()

    def solves(self) -> SolveLog:
        """What was planned when, as of the newest reading."""
        reading = self.read()
        if self._solves_read != reading.number:
            self._solves_read = reading.number
            rows = self._source.solves(self._solves.num_past, SOLVES_SHOWN)
            self._solves.update(rows, self._source.num_solves())
        return self._solves

    def iterations(self, job: str) -> Sequence[IterationRecord]:
        """Committed iterations of a job, in order."""
        return self._source.iterations(job)

    def _catch_up(self) -> None:
        """Count leases that ended since the last reading; a long backlog takes several."""
        num_ended = self._source.num_leases()
        found = self._source.leases(self._num_seen)
        batch = found[:MAX_BATCH]
        self._tally.add(batch)
        # What was dropped from memory before it was counted is skipped.
        self._num_seen = num_ended - len(found) + len(batch)

    def _note_plan(self, status: ClusterStatus) -> None:
        adopted_s = status.plan.adopted_s
        if adopted_s is None or (self._plans and self._plans[-1].adopted_s == adopted_s):
            return
        self._plans.append(adopted_plan(self._source.plan(0), adopted_s))
