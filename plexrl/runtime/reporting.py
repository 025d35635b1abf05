"""How a service's reports reach the scheduler: in order, and in as few messages as can be."""

from __future__ import annotations

from collections import deque
from typing import Any

from plexrl.runtime import messages
from plexrl.runtime.messages import pack
from plexrl.services.reports import LeaseEnded, Report

REPORT_S = 0.002
"""Seconds until it is told that a lease began: its thread gives the engine its work meanwhile, and
both would want the interpreter."""


class Reporter:
    """Sends reports of the service in this worker.

    Parameters
    ----------
    worker
        The Dask worker.
    """

    def __init__(self, worker: Any) -> None:
        self._worker = worker
        self._waiting: deque[Report] = deque()

    def take(self, report: Report) -> None:
        """Take a report, in any thread.

        That a lease ended waits for `tell`: Dask tells next of its task, and both cost the
        scheduler one message then.
        """
        self._waiting.append(report)
        if not isinstance(report, LeaseEnded):
            loop = self._worker.loop
            loop.add_callback(loop.call_later, REPORT_S, self.tell)

    def tell(self) -> None:
        """Send what was taken; called in the event loop."""
        while self._waiting:
            report = self._waiting.popleft()
            self._worker.batched_send({"op": messages.REPORT, "payload": pack(report)})
