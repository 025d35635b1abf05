"""Checks the log of a run, sharing no code with the arbiter that granted its leases."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

from solver.trace import LeaseRecord, Outcome
from solver.verify import Verification

SLACK_S = 0.005
"""What clocks of two processes of a machine may be apart, with the time a message takes."""
_BROKEN = frozenset({Outcome.FAILED, Outcome.LOST, Outcome.CANCELLED})
"""After a lease that ended so its job may go back and do what it had done again."""


def verify_log(records: Iterable[LeaseRecord], *, max_staleness: int | None = None) -> Verification:
    """Check what must hold of any run, whatever its plan was.

    A group serves one function at a time; a function over several groups has them all at once;
    leases begin when their inputs are there and hold the time their switch takes; ops of a job are
    done once per iteration, and iterations follow each other, unless something of the job was lost
    in between.

    Parameters
    ----------
    records
        Leases on one clock, in any order.
    max_staleness
        Versions that rollouts may lag behind the iteration they sample for; None: not checked.
    """
    ordered = sorted(records, key=lambda record: (record.started_s, record.group))
    found = [line for record in ordered for line in _lease(record)]
    found += _groups(ordered)
    found += _gangs(ordered)
    found += _jobs(ordered)
    if max_staleness is not None:
        found += _stale(ordered, max_staleness)
    return Verification(tuple(found))


def _lease(record: LeaseRecord) -> Iterator[str]:
    if record.started_s < record.ready_s - SLACK_S:
        yield f"{_named(record)} begins at {record.started_s:.3f}, ready at {record.ready_s:.3f}"
    if record.ended_s < record.started_s:
        yield f"{_named(record)} ends at {record.ended_s:.3f}, before it begins"
    if not 0 <= record.swap_s <= record.held_s + SLACK_S:
        yield f"{_named(record)} switches for {record.swap_s:.3f} s of {record.held_s:.3f} s"


def _groups(ordered: Sequence[LeaseRecord]) -> Iterator[str]:
    last: dict[str, LeaseRecord] = {}
    for record in ordered:
        before = last.get(record.group)
        if before is not None and record.started_s < before.ended_s - SLACK_S:
            yield (
                f"{_named(record)} begins at {record.started_s:.3f} on group {record.group!r}, "
                f"which {_named(before)} holds until {before.ended_s:.3f}"
            )
        if before is None or record.ended_s > before.ended_s:
            last[record.group] = record


def _gangs(ordered: Sequence[LeaseRecord]) -> Iterator[str]:
    """Leases of one function that overlap are of one gang: they begin and end together."""
    by_id: dict[str, list[LeaseRecord]] = {}
    for record in ordered:
        by_id.setdefault(record.id, []).append(record)
    for members in by_id.values():
        for before, record in pairwise(members):
            is_apart = record.started_s >= before.ended_s - SLACK_S
            starts_s = abs(record.started_s - before.started_s)
            is_together = starts_s <= SLACK_S and abs(record.ended_s - before.ended_s) <= SLACK_S
            if not is_apart and not is_together:
                yield (
                    f"{_named(record)} holds group {record.group!r} from {record.started_s:.3f} to "
                    f"{record.ended_s:.3f} and group {before.group!r} from "
                    f"{before.started_s:.3f} to {before.ended_s:.3f}; a gang has all or none"
                )


def _jobs(ordered: Sequence[LeaseRecord]) -> Iterator[str]:
    """Iterations of an op follow each other."""
    done: dict[tuple[str, str, str], LeaseRecord] = {}
    broken_s: dict[str, float] = {}
    for record in sorted(ordered, key=lambda entry: entry.ended_s):
        if record.outcome in _BROKEN:
            broken_s[record.job] = record.ended_s
        if record.outcome is not Outcome.DONE:
            continue
        key = (record.job, record.op, record.group)
        before = done.get(key)
        done[key] = record
        if before is None or record.iteration > before.iteration:
            continue
        if broken_s.get(record.job, before.ended_s - 1) < before.ended_s - SLACK_S:
            yield (
                f"{_named(record)} is done at {record.ended_s:.3f}, though {_named(before)} was at "
                f"{before.ended_s:.3f} and nothing of the job was lost since"
            )


def _stale(ordered: Sequence[LeaseRecord], most: int) -> Iterator[str]:
    trained = {(r.job, r.model) for r in ordered if ".train" in f".{r.op}"}
    for record in ordered:
        if (record.job, record.model) in trained and ".rollout" in f".{record.op}":
            behind = record.iteration - record.version
            if not 0 <= behind <= most:
                yield (
                    f"{_named(record)} samples with version {record.version}, {behind} behind its "
                    f"iteration; it may be {most} behind"
                )


def _named(record: LeaseRecord) -> str:
    return f"op {record.op!r} of iteration {record.iteration} of job {record.job!r}"
