"""Ends what never ends: rewards, tools and other ordinary tasks of jobs that run for too long.

A function that hangs in a worker's thread cannot be killed there. So its task fails, and with it
its job, with an error that says so; then its worker is started anew, which ends the thread. Other
drivers and tasks of that worker go on elsewhere.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any

from plexrl.clock import Clock
from plexrl.errors import TaskTimeoutError
from plexrl.runtime.gate import Gate

logger = logging.getLogger("plexrl.scheduler")

RESTART_AFTER_S = 5.0
"""Seconds between the failure of a task and the restart of its worker: the job's driver may live
there, and has to tell the failure first."""


class Overdue:
    """Knows since when ordinary tasks run.

    Parameters
    ----------
    gate
        Says which run, and ends them.
    limit_s
        Seconds one may run.
    jobs_of
        Maps running ordinary tasks to their jobs; those of nobody's job are left alone.
    """

    def __init__(
        self, gate: Gate, limit_s: float, jobs_of: Callable[[], Mapping[Any, str]], clock: Clock
    ) -> None:
        self._gate = gate
        self._limit_s = limit_s
        self._jobs_of = jobs_of
        self._clock = clock
        self._since_s: dict[Any, float] = {}

    def look(self) -> None:
        """End what has run for too long; called again and again."""
        now_s, jobs = self._clock(), self._jobs_of()
        self._since_s = {key: self._since_s.get(key, now_s) for key in jobs}
        for key, since_s in self._since_s.items():
            if now_s - since_s > self._limit_s:
                self._end(key, jobs[key])

    def _end(self, key: Any, job: str) -> None:
        worker = self._gate.worker_of(key)
        error = TaskTimeoutError(
            f"task {key} of job {job!r} ran for more than {self._limit_s:g} s on {worker} and was "
            "ended; look for what hangs in it, give its reward or tool a limit of its own "
            "(dataflow.rewards.IsolatedReward), or raise plexrl.cluster.task_timeout_s"
        )
        logger.warning("%s", error)
        self._gate.fail(key, error)
        asyncio.get_running_loop().call_later(RESTART_AFTER_S, self._gate.restart, worker)
