"""Loaded by every worker of a local cluster: Ctrl-C is for the user's process, not for its workers.

A terminal sends Ctrl-C to all processes of the group. Workers that took it would be gone before
that process has told them to write what is committed.
"""

from __future__ import annotations

import signal

from distributed import Worker


def dask_setup(_worker: Worker) -> None:
    """Ignore Ctrl-C; Dask calls this in the worker's main thread while it starts."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
