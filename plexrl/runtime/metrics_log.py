"""The metrics of all iterations in the store: what a resumed job has from its earlier lives.

One JSON object per committed iteration; that of a rolled-back one is replaced by its replay::

    <store>/metrics/<job>/000012.json
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from pathlib import Path

from plexrl.errors import StoreError
from plexrl.runtime.registry import check_there
from plexrl.state.documents import open_documents
from plexrl.state.places import below
from solver.trace import IterationRecord

logger = logging.getLogger("plexrl.driver")


class MetricsLog:
    """Iterations of the jobs of one store; times in seconds of the system clock.

    `append` is not safe to use from several threads at once.
    """

    def __init__(self, store: str | Path) -> None:
        self._store = store
        self._documents = open_documents(below(store, "metrics"))
        self._unwritten: dict[str, bytes] = {}
        """Documents that could not be written yet."""

    def append(self, record: IterationRecord) -> None:
        """Add an iteration; where the store refuses, together with the next one."""
        document = {
            "iteration": record.iteration,
            "started_s": record.started_s,
            "ended_s": record.ended_s,
            "metrics": dict(record.metrics),
        }
        name = f"{record.job}/{record.iteration:06d}.json"
        self._unwritten[name] = json.dumps(document).encode()
        try:
            check_there(self._store)
            for name in list(self._unwritten):
                self._documents.put(name, self._unwritten[name])
                del self._unwritten[name]
        except StoreError as error:
            logger.warning("metrics of job %s are not in the store yet: %s", record.job, error)

    def read(self, job: str) -> Mapping[int, IterationRecord]:
        """Iteration → its record.

        Raises
        ------
        StoreError
            The store cannot be read.
        """
        records = {}
        for name in self._documents.names(f"{job}/"):
            content = self._documents.get(name)
            if content is not None:
                found = json.loads(content)
                times_s = (found["started_s"], found["ended_s"])
                metrics = tuple(found["metrics"].items())
                records[found["iteration"]] = IterationRecord(
                    job, found["iteration"], *times_s, metrics
                )
        return records

    def forget(self, job: str) -> None:
        """Delete all: another job begins under this name."""
        for name in self._documents.names(f"{job}/"):
            self._documents.delete(name)
