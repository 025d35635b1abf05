"""A run as a Chrome trace: open it in Perfetto (ui.perfetto.dev) or ``chrome://tracing``."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from pathlib import Path

from plexrl.dashboard.lanes import Bar, Kind, actual_bars, job_bars
from solver.trace import IterationRecord, LeaseRecord

_GROUPS, _JOBS, _ITERATIONS = 1, 2, 3
"""Processes of the trace: tracks of groups, of jobs as on the timeline, and of iterations."""

_TITLES = {_GROUPS: "groups", _JOBS: "jobs", _ITERATIONS: "iterations"}

US_PER_S = 1e6
"""Chrome traces count microseconds."""


def write_perfetto(
    path: str | Path, leases: Sequence[LeaseRecord], iterations: Sequence[IterationRecord]
) -> Path:
    """Write a run as a Chrome trace.

    Parameters
    ----------
    path
        File to write, ``.json``.
    leases, iterations
        The execution log.

    Returns
    -------
    Path
        The file.
    """
    path = Path(path)
    trace = {"displayTimeUnit": "ms", "traceEvents": events(leases, iterations)}
    path.write_text(json.dumps(trace), encoding="utf-8")
    return path


def events(
    leases: Sequence[LeaseRecord], iterations: Sequence[IterationRecord]
) -> list[dict[str, object]]:
    """The events of the trace: named tracks, then slices and reward counters."""
    groups = _threads(lease.group for lease in leases)
    of_jobs = job_bars(leases)
    lanes = _threads(bar.lane for bar in of_jobs)
    jobs = _threads(record.job for record in iterations)
    found = [*_names(_GROUPS, groups), *_names(_JOBS, lanes), *_names(_ITERATIONS, jobs)]
    found += [_slice(_GROUPS, groups[bar.lane], bar, bar.job) for bar in actual_bars(leases)]
    found += [_slice(_JOBS, lanes[bar.lane], bar, bar.function) for bar in of_jobs]
    for record in iterations:
        found += _iteration(record, jobs[record.job])
    return found


def _threads(names: Iterable[str]) -> dict[str, int]:
    """Name → number of its track, from 1, in order of first use."""
    return {name: number for number, name in enumerate(dict.fromkeys(names), start=1)}


def _names(process: int, threads: dict[str, int]) -> Iterable[dict[str, object]]:
    yield {"ph": "M", "name": "process_name", "pid": process, "args": {"name": _TITLES[process]}}
    for name, thread in threads.items():
        yield {
            "ph": "M",
            "name": "thread_name",
            "pid": process,
            "tid": thread,
            "args": {"name": name},
        }


def _slice(process: int, thread: int, bar: Bar, name: str) -> dict[str, object]:
    named = {
        Kind.SWAP: f"swap {bar.job}",
        Kind.QUEUED: f"queued for {bar.function}",
        Kind.APART: "without a group",
    }.get(bar.kind, f"{name} {bar.function}" if process == _GROUPS else name)
    return {
        "ph": "X",
        "name": named,
        "cat": str(bar.kind),
        "pid": process,
        "tid": thread,
        "ts": bar.start_s * US_PER_S,
        "dur": (bar.end_s - bar.start_s) * US_PER_S,
        "args": {"job": bar.job, "op": bar.op, "note": bar.note},
    }


def _iteration(record: IterationRecord, thread: int) -> Iterable[dict[str, object]]:
    # JSON knows no NaN and no infinity, and readers of traces refuse a file that has them.
    metrics = {name: value for name, value in record.metrics if math.isfinite(value)}
    yield {
        "ph": "X",
        "name": f"iteration {record.iteration}",
        "cat": "iteration",
        "pid": _ITERATIONS,
        "tid": thread,
        "ts": record.started_s * US_PER_S,
        "dur": (record.ended_s - record.started_s) * US_PER_S,
        "args": metrics,
    }
    if "reward_mean" in metrics:
        yield {
            "ph": "C",
            "name": f"reward {record.job}",
            "pid": _ITERATIONS,
            "ts": record.ended_s * US_PER_S,
            "args": {"reward_mean": metrics["reward_mean"]},
        }
