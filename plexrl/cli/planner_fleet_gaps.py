"""Gaps of jobs in a stretch of simulation, and who fills them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise

from plexrl.dashboard.plancycles import PlannedSpan
from plexrl.dashboard.planreport import GapRow
from plexrl.spelling import as_counted

LEAST_S = 0.01
"""Shorter gaps are handing a group from one op to the next."""


@dataclass(frozen=True, slots=True)
class _Gap:
    """A stretch in which a job does not hold a group that it comes back to."""

    group: str
    job: str
    after_op: str
    length_s: float
    filled_s: dict[str, float]
    """Other job → seconds it holds the group in it."""


def gap_rows(spans: Iterable[PlannedSpan]) -> tuple[GapRow, ...]:
    """What follows each op of each job on each group until the job is there again, on average."""
    alike: dict[tuple[str, str, str], list[_Gap]] = defaultdict(list)
    for gap in _gaps(spans):
        alike[gap.job, gap.group, gap.after_op].append(gap)
    ordered = sorted(alike.items(), key=lambda entry: tuple(map(as_counted, entry[0])))
    return tuple(_row(gaps) for _, gaps in ordered)


def overlaps(spans: Iterable[PlannedSpan]) -> dict[tuple[str, str], float]:
    """(job, other) → share of the job's gaps in which the other holds the group."""
    total: dict[str, float] = defaultdict(float)
    shared: dict[tuple[str, str], float] = defaultdict(float)
    for gap in _gaps(spans):
        total[gap.job] += gap.length_s
        for other, seconds in gap.filled_s.items():
            shared[gap.job, other] += seconds
    ordered = sorted(shared, key=lambda pair: tuple(map(as_counted, pair)))
    return {pair: shared[pair] / total[pair[0]] for pair in ordered}


def _row(gaps: list[_Gap]) -> GapRow:
    length_s = sum(gap.length_s for gap in gaps)
    filled_s: dict[str, float] = defaultdict(float)
    for gap in gaps:
        for other, seconds in gap.filled_s.items():
            filled_s[other] += seconds
    most = sorted(filled_s.items(), key=lambda entry: (-entry[1], entry[0]))
    return GapRow(
        gaps[0].group,
        gaps[0].job,
        gaps[0].after_op,
        length_s / len(gaps),
        sum(filled_s.values()) / length_s,
        tuple((other, seconds / len(gaps)) for other, seconds in most),
    )


def _gaps(spans: Iterable[PlannedSpan]) -> Iterator[_Gap]:
    here: dict[str, list[PlannedSpan]] = defaultdict(list)
    for span in spans:
        if not span.is_switch:
            here[span.group].append(span)
    for group, held in here.items():
        for job in dict.fromkeys(span.job for span in held):
            mine = [span for span in held if span.job == job]
            for before, after in pairwise(mine):
                if after.start_s - before.end_s > LEAST_S:
                    filled_s = _filled(held, job, before.end_s, after.start_s)
                    length_s = after.start_s - before.end_s
                    yield _Gap(group, job, before.op, length_s, filled_s)


def _filled(
    held: Iterable[PlannedSpan], job: str, start_s: float, end_s: float
) -> dict[str, float]:
    found: dict[str, float] = defaultdict(float)
    for span in held:
        seconds = min(span.end_s, end_s) - max(span.start_s, start_s)
        if span.job != job and seconds > 0:
            found[span.job] += seconds
    return found
