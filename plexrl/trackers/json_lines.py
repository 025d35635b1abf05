"""Metrics as JSON Lines: one object per committed iteration, readable without any library."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TextIO

from plexrl.trackers.protocol import numbers_of
from solver.trace import IterationRecord


class JsonLinesTracker:
    """Appends to ``FOLDER/JOB.jsonl``; each line is written before the call returns."""

    def __init__(self, folder: str | Path) -> None:
        self._folder = Path(folder)
        self._files: dict[str, TextIO] = {}

    def begin(self, job: str, settings: Mapping[str, object]) -> None:
        """Open the job's file and write its settings as the first line."""
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._folder / f"{job}.jsonl"
        self._files[job] = path.open("a", encoding="utf-8", buffering=1)
        self._write(job, {"job": job, "settings": dict(settings)})

    def log(self, record: IterationRecord) -> None:
        """Write one line."""
        row = {"job": record.job, "iteration": record.iteration, "ended_s": record.ended_s}
        self._write(record.job, {**row, **numbers_of(record)})

    def end(self, job: str) -> None:
        """Close the job's file."""
        self._files.pop(job).close()

    def close(self) -> None:
        """Close all files."""
        for job in list(self._files):
            self.end(job)

    def _write(self, job: str, row: Mapping[str, object]) -> None:
        self._files[job].write(json.dumps(row, default=str) + "\n")
