"""The committed iterations of one job: what is added costs the same however long the job ran."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from solver.trace import IterationRecord

MAX_RECORDS = 10_000
"""Records kept per job, about 10 MB: more iterations than most jobs have. Of a longer job the
oldest ones leave memory; its trackers have them all."""


class IterationLog:
    """Iterations committed in this life of the cluster, in order, each once.

    Attributes
    ----------
    num
        Iterations so far, those no longer in memory included.
    total_s
        Seconds of them all, added up.
    first
        The oldest one that counts, whether or not it is still in memory.
    """

    __slots__ = ("_records", "first", "num", "total_s")

    def __init__(self, max_records: int = MAX_RECORDS) -> None:
        self._records: deque[IterationRecord] = deque(maxlen=max_records)
        self.num = 0
        self.total_s = 0.0
        self.first: IterationRecord | None = None

    def __len__(self) -> int:
        return len(self._records)

    def __iter__(self) -> Iterator[IterationRecord]:
        return iter(self._records)

    def __reversed__(self) -> Iterator[IterationRecord]:
        return reversed(self._records)

    @property
    def last(self) -> IterationRecord | None:
        """Newest record."""
        return self._records[-1] if self._records else None

    @property
    def mean_s(self) -> float | None:
        """Mean seconds of an iteration; None before the first."""
        return self.total_s / self.num if self.num else None

    def records(self) -> tuple[IterationRecord, ...]:
        """Records in memory, in order."""
        return tuple(self._records)

    def append(self, record: IterationRecord) -> None:
        """Add an iteration; those from its number on are taken back."""
        self.truncate(record.iteration)
        if self.first is None:
            self.first = record
        self._records.append(record)
        self.num += 1
        self.total_s += record.ended_s - record.started_s

    def truncate(self, iteration: int) -> None:
        """Take back the iterations from this number on."""
        while self._records and self._records[-1].iteration >= iteration:
            record = self._records.pop()
            self.num -= 1
            self.total_s -= record.ended_s - record.started_s
        if self.first is not None and self.first.iteration >= iteration:
            self.first, self.num, self.total_s = None, 0, 0.0
