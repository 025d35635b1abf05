"""The output folder of a run: plan, timeline, metrics, leases, report and trained models."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from plexrl.dashboard.lanes import AdoptedPlan
from plexrl.dashboard.timeline import write_timeline
from plexrl.errors import InputError
from solver.trace import IterationRecord, LeaseRecord

METRICS_SCHEMA = pa.schema(
    [
        ("run", pa.string()),
        ("job", pa.string()),
        ("iteration", pa.int64()),
        ("metric", pa.string()),
        ("value", pa.float64()),
    ]
)
"""Tidy: one value a row. ``run`` is ``alone`` or ``shared``."""


class OutputFolder:
    """Where a run leaves its results.

    Parameters
    ----------
    path
        Folder; made if it is not there. Files of an earlier run in it are replaced.

    Raises
    ------
    InputError
        It is a file, or cannot be written.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path).absolute()
        try:
            (self.path / "models").mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(
                f"output folder {self.path} cannot be made ({error.strerror}); name another with "
                "--output"
            ) from error

    def model(self, job: str) -> Path:
        """Folder of a job's trained model, in Hugging Face's format."""
        return self.path / "models" / job

    def write_json(self, name: str, data: Mapping[str, object]) -> Path:
        """Write one JSON file."""
        path = self.path / name
        path.write_text(json.dumps(data, indent=2, default=str) + "\n", encoding="utf-8")
        return path

    def write_metrics(
        self, runs: Mapping[str, Iterable[IterationRecord]], names: Mapping[str, str]
    ) -> Path:
        """Write ``metrics.parquet``.

        Parameters
        ----------
        runs
            ``alone`` or ``shared`` → its iterations.
        names
            Name in the cluster → name of the job, where they differ.
        """
        rows = [
            {
                "run": run,
                "job": names.get(record.job, record.job),
                "iteration": record.iteration,
                "metric": metric,
                "value": float(value),
            }
            for run, records in runs.items()
            for record in records
            for metric, value in (
                ("started_s", record.started_s),
                ("ended_s", record.ended_s),
                *record.metrics,
            )
        ]
        return self._parquet("metrics.parquet", pa.Table.from_pylist(rows, METRICS_SCHEMA))

    def write_leases(
        self, runs: Mapping[str, Iterable[LeaseRecord]], names: Mapping[str, str]
    ) -> Path:
        """Write ``leases.parquet``: the fields of `solver.trace.LeaseRecord` and the run."""
        rows = [
            {"run": run, **lease.to_json(), "job": names.get(lease.job, lease.job)}
            for run, leases in runs.items()
            for lease in leases
        ]
        return self._parquet("leases.parquet", pa.Table.from_pylist(rows))

    def write_timeline(
        self,
        leases: Sequence[LeaseRecord],
        iterations: Sequence[IterationRecord],
        plans: Sequence[AdoptedPlan],
        *,
        title: str,
        subtitle: str,
    ) -> Path:
        """Write ``timeline.html``."""
        path = self.path / "timeline.html"
        return write_timeline(path, leases, iterations, plans, title=title, subtitle=subtitle)

    def _parquet(self, name: str, table: pa.Table) -> Path:
        path = self.path / name
        pq.write_table(table, path)
        return path
