"""What services committed: newest version tokens, and iterations no driver has confirmed yet."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from dataflow.calls import Trained, VersionToken
from solver.trace import IterationRecord, LeaseRecord


class CommitLog:
    """Commits of all jobs.

    A driver that dies takes along what it had not reported; the services' own reports fill the
    gap, so that the history of a job has every iteration once.
    """

    def __init__(self) -> None:
        self._tokens: dict[str, dict[str, VersionToken]] = {}
        self._unconfirmed: dict[tuple[str, int], tuple[IterationRecord, VersionToken]] = {}

    def tokens(self, job: str) -> Mapping[str, VersionToken]:
        """Model → newest committed token of a job."""
        return self._tokens.get(job, {})

    def note(self, lease: LeaseRecord, trained: Trained) -> None:
        """A service committed a version."""
        record = IterationRecord(
            lease.job, lease.iteration, lease.ready_s, lease.ended_s, trained.metrics
        )
        self._unconfirmed[lease.job, lease.iteration] = (record, trained.token)

    def confirm(self, job: str, iteration: int, tokens: Iterable[VersionToken]) -> None:
        """A driver reported a committed iteration."""
        self._tokens.setdefault(job, {}).update({token.model: token for token in tokens})
        self._unconfirmed.pop((job, iteration), None)

    def resume_at(self, job: str, tokens: Iterable[VersionToken]) -> None:
        """A driver found these versions; those that training made are the newest committed."""
        made = {token.model: token for token in tokens if token.version}
        self._tokens.setdefault(job, {}).update(made)

    def catch_up(self, job: str, first: int, until: int) -> Iterator[IterationRecord]:
        """Iterations in [first, until) that no driver reported, as far as services did."""
        for iteration in range(first, until):
            found = self._unconfirmed.get((job, iteration))
            if found is None:
                return
            record, token = found
            self.confirm(job, iteration, [token])
            yield record
