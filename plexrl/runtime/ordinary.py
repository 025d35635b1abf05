"""Which ordinary tasks (rewards, tools and the like) run right now, and for whom."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from dask.utils import key_split

from plexrl.core.jobs import JobTable
from plexrl.runtime.gate import Gate
from plexrl.runtime.ledger import Ledger

NODE_KEY = re.compile(r"(?P<phase>[a-z_]+)-i\d+\.a\d+\.t\d+\.(?P<tail>.+)")
"""Shape of `dataflow.keys.node_key`."""

MAX_LOOKED_AT = 100
"""Dependents of a task without such a key that are asked whose it is: the LLM function that it
feeds is a few steps away, and somebody else's graph may be large."""


class OrdinaryTasks:
    """Reads the gate, and finds the job behind each task."""

    def __init__(self, gate: Gate, jobs: JobTable, ledger: Ledger) -> None:
        self._gate = gate
        self._jobs = jobs
        self._ledger = ledger

    def phases(self) -> dict[str, str]:
        """Job → phase of its ordinary task that runs right now."""
        return {job: phase for _, job, phase in self._running()}

    def jobs(self) -> Mapping[Any, str]:
        """Running task → its job; those of nobody's job are left out."""
        return {key: job for key, job, _ in self._running()}

    def _running(self) -> Iterator[tuple[Any, str, str]]:
        """Key, job and phase of each."""
        for key in self._gate.ordinary_keys():
            found = NODE_KEY.fullmatch(str(key))
            job = self._job_fed_by(key) if found is None else self._job_named(found["tail"])
            if job is not None:
                yield key, job, key_split(key) if found is None else found["phase"]

    def _job_named(self, tail: str) -> str | None:
        # The tail is job, model and run joined by dots, and names may have dots themselves.
        parts = tail.split(".")
        for length in range(len(parts), 0, -1):
            name = ".".join(parts[:length])
            if name in self._jobs:
                return name
        return None

    def _job_fed_by(self, key: Any) -> str | None:
        """Job of the nearest LLM function that depends on a task of a pipeline's own."""
        seen, left = {key}, [key]
        while left and len(seen) < MAX_LOOKED_AT:
            for dependent in self._gate.dependents(left.pop(0)):
                if dependent in self._ledger:
                    return self._ledger[dependent].job
                if dependent not in seen:
                    seen.add(dependent)
                    left.append(dependent)
        return None
