"""Fits a planning problem to what ran: a log of ours, a CSV of the same columns, a cluster."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

import solver
from dataflow.phases import Phase
from plexrl.cli.attached import attached
from plexrl.core.placement import PINNABLE, Placement, model_and_phase
from plexrl.errors import InputError
from plexrl.planning.facts import PlannedJob
from plexrl.planning.problems import EstimatedJob, job_of
from plexrl.planning.profiles import JobProfile
from solver.trace import LeaseRecord, Outcome

DEFAULT_LIMIT = 2.0
"""Slowdown limit where the user gives none: as for jobs without one."""
NEEDED = ("job", "op", "iteration", "group", "ready_s", "started_s", "ended_s")
"""Columns a log must have; ``swap_s``, ``ahead_s``, ``outcome`` and ``run`` are read if there."""


def problem_of_log(path: Path, *, slowdown_limit: float, memory_gb: float) -> solver.Problem:
    """Medians of a run's ops and waits, as a problem.

    Parameters
    ----------
    path
        Output folder of a run, its ``leases.parquet``, or a CSV with the columns `NEEDED`. Where
        jobs ran both alone and shared, the shared run counts, since only it has switches.
    slowdown_limit
        Of every job.
    memory_gb
        Of every group; a log does not tell it.

    Raises
    ------
    InputError
        It cannot be read, lacks a column, holds a lease that ends before it starts, or no whole
        iteration of a job.
    """
    return _fitted(str(path), read_log(path), slowdown_limit, memory_gb)


def read_log(path: Path) -> tuple[LeaseRecord, ...]:
    """Leases of an output folder, a ``leases.parquet`` or a CSV.

    Raises
    ------
    InputError
        It cannot be read, or lacks a column.
    """
    return tuple(_record(path, row) for row in _rows(path))


def problem_of_cluster(address: str, *, slowdown_limit: float, memory_gb: float) -> solver.Problem:
    """Medians of the ops and waits that ran on a cluster so far, as a problem.

    Jobs without a whole iteration yet are left out: there are always some that just began.

    Parameters
    ----------
    address
        Of its Dask scheduler, such as ``tcp://10.0.0.1:8786``.
    slowdown_limit, memory_gb
        As for a log.

    Raises
    ------
    InputError
        Nothing answers there, or no job has finished an iteration yet.
    """
    with attached(address) as cluster:
        records = cluster.trace().leases
    known = {name for name, profile in _profiles(records).items() if profile.estimates()}
    if not known:
        raise InputError(f"{address} has run nothing yet; wait until jobs finished iterations")
    records = tuple(record for record in records if record.job in known)
    return _fitted(address, records, slowdown_limit, memory_gb)


def _profiles(records: Iterable[LeaseRecord]) -> dict[str, JobProfile]:
    by_job: dict[str, list[LeaseRecord]] = {}
    for record in sorted(records, key=lambda lease: lease.ended_s):
        by_job.setdefault(record.job, []).append(record)
    profiles = {}
    for name, mine in by_job.items():
        profiles[name] = JobProfile(PlannedJob(name, staleness=_staleness(mine)))
        for record in mine:
            profiles[name].observe(record)
    return profiles


def _fitted(
    source: str, records: Iterable[LeaseRecord], slowdown_limit: float, memory_gb: float
) -> solver.Problem:
    records = tuple(records)
    for record in records:
        if record.ended_s <= record.started_s:
            raise InputError(
                f"{source} has a lease of {record.op!r} of job {record.job!r} that ends at "
                f"{record.ended_s:g} s, no later than it starts; try: plexrl verify LOG"
            )
    groups = {record.group for record in records}
    entries = []
    for name, profile in _profiles(records).items():
        estimates = profile.estimates()
        if not estimates:
            raise InputError(
                f"{source} holds no whole iteration of job {name!r}; give the log of a longer run"
            )
        mine = [record for record in records if record.job == name]
        job = PlannedJob(name, slowdown_limit=slowdown_limit, staleness=_staleness(mine))
        entries.append(EstimatedJob(job, _placement(mine), estimates))
    try:
        return solver.Problem(
            tuple(solver.Group(name, max(round(memory_gb * 1e9), 1)) for name in sorted(groups)),
            _jobs(entries),
        )
    except solver.ProblemError as error:
        raise InputError(f"{source}: {error}") from error


def _jobs(entries: Sequence[EstimatedJob]) -> tuple[solver.Job, ...]:
    """Jobs as they ran; free to be placed anywhere unless one of them ran on several groups."""
    jobs = [replace(job_of(entry), weight=1) for entry in entries]
    if any(job.is_spread for job in jobs):
        return tuple(jobs)
    return tuple(replace(job, pinned_group=None) for job in jobs)


def _placement(records: Iterable[LeaseRecord]) -> Placement:
    """Where a job ran last: it is at home where it trains, or where its last function ran."""
    ordered = sorted(records, key=lambda record: record.ended_s)
    trained = [r for r in ordered if model_and_phase(r.op)[1] == Phase.TRAIN]
    last = [*ordered, *trained][-1]
    # It may have moved since, in the middle of what it has run of an iteration.
    places = {
        model_and_phase(record.op): record.group
        for record in ordered
        if record.iteration <= last.iteration
    }
    apart = {key: group for key, group in places.items() if key[1] in PINNABLE}
    return Placement.of_models(last.group, apart)


def _staleness(records: Iterable[LeaseRecord]) -> int:
    """Versions by which a job's rollouts ran ahead."""
    rollouts = (r for r in records if model_and_phase(r.op)[1] == Phase.ROLLOUT)
    return max([0, *(record.iteration - record.version for record in rollouts)])


def _rows(path: Path) -> list[dict[str, Any]]:
    file = path / "leases.parquet" if path.is_dir() else path
    try:
        table = pa_csv.read_csv(file) if file.suffix == ".csv" else pq.read_table(file)
    except (OSError, pa.ArrowException) as error:
        raise InputError(
            f"{file} cannot be read as a log ({error}); give an output folder of plexrl run or "
            "demo, a leases.parquet, or a CSV"
        ) from error
    missing = [name for name in NEEDED if name not in table.column_names]
    if missing:
        raise InputError(f"{file} lacks the column {missing[0]!r}; a log has {', '.join(NEEDED)}")
    rows: list[dict[str, Any]] = table.to_pylist()
    if any(row.get("run") == "shared" for row in rows):
        rows = [row for row in rows if row["run"] == "shared"]
    if not rows:
        raise InputError(f"{file} has no rows; give the log of a run that had leases")
    return rows


def _record(path: Path, row: Mapping[str, Any]) -> LeaseRecord:
    try:
        for name in ("job", "op", "group"):
            if row[name] is None or not str(row[name]).strip():
                raise ValueError(f"it has no {name}")
        if row["iteration"] != int(row["iteration"]) or row["iteration"] < 0:
            raise ValueError("its iteration is no whole number from 0")
        return LeaseRecord(
            id=str(row.get("id") or f"{row['job']}:{row['iteration']}:{row['op']}"),
            job=str(row["job"]),
            model=str(row.get("model") or ""),
            op=str(row["op"]),
            iteration=int(row["iteration"]),
            version=int(row["iteration"] if row.get("version") is None else row["version"]),
            group=str(row["group"]),
            ready_s=float(row["ready_s"]),
            started_s=float(row["started_s"]),
            ended_s=float(row["ended_s"]),
            swap_s=float(row.get("swap_s") or 0.0),
            swap_source="host",
            swap_bytes=0,
            outcome=Outcome(row.get("outcome") or "done"),
            ahead_s=float(row.get("ahead_s") or 0.0),
        )
    except (TypeError, ValueError) as error:
        raise InputError(f"{path} has a row that is no lease ({error}): {dict(row)}") from error
