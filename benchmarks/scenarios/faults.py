"""What survives faults: rows by part of PlexRL, counts by kind of fault."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from benchmarks.contract import BenchmarkResult, Progress
from benchmarks.faults import state

SEED = 0

Row = Callable[[bool, Progress], Mapping[str, float]]
"""Injects the faults of one part; gives figures, ``faults_injected`` among them."""


def state_faults(quick: bool, progress: Progress) -> Mapping[str, float]:
    """Disks and processes against the store."""
    progress("state: torn writes, bit flips, full and slow disks, vanished files, kills")
    tally = state.inject(20 if quick else 180, 1 if quick else 3, SEED)
    return {
        "faults_injected": float(tally.injected.total()),
        "corrupt_admitted": float(tally.num_corrupt_admitted),
        "committed_versions_lost": float(tally.num_lost),
        "commits_interrupted": float(tally.num_commits_interrupted),
        **{f"state_{kind}": float(count) for kind, count in sorted(tally.injected.items())},
    }


ROWS: dict[str, Row] = {"state": state_faults}
"""Part → what injects its faults; figures of the same name are added up."""


def run(quick: bool, progress: Progress, only: str | None = None) -> BenchmarkResult:
    """Inject faults into every part, or into one of `ROWS`."""
    figures: dict[str, float] = {}
    for name, row in ROWS.items():
        if only in {None, name}:
            for figure, value in row(quick, progress).items():
                figures[figure] = figures.get(figure, 0.0) + value
    return BenchmarkResult("faults", figures, {}, SEED)
