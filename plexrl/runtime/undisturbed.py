"""Loaded by every worker of a local cluster: Ctrl-C is for the user's process, not for its workers.

A terminal sends Ctrl-C to all processes of the group. Workers that took it would be gone before
that process has told them to write what is committed.
"""

from __future__ import annotations

import os
import signal
import sys

from distributed import Worker

from plexrl.runtime.gate import group_of

NICENESS = 5
"""Of workers without a group and their tools: on a full machine the engine of a group goes first,
since everything waits for it."""


SWITCH_S = 0.0005
"""Longest that a thread which computes in Python keeps a worker's event loop from running; Python's
own 5 ms pass several times in an iteration."""


def dask_setup(worker: Worker) -> None:
    """Ignore Ctrl-C, and yield to groups; Dask calls this while the worker starts."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.setswitchinterval(SWITCH_S)
    if group_of(worker.state.total_resources) is None:
        os.nice(NICENESS)
