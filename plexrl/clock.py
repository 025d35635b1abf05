"""The one clock: passed in, so that tests can turn it by hand."""

from __future__ import annotations

import time
from collections.abc import Callable

Clock = Callable[[], float]
"""Returns seconds; only differences mean anything."""

system_clock: Clock = time.time
"""Wall time: the processes of one cluster share it (they are compared across processes)."""
