"""Who has a group: one function at a time, here or of a gang that is led by another group."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from plexrl.errors import LeaseError, ServiceError


class Occupancy:
    """The lock of a group; safe to use from several threads.

    Parameters
    ----------
    group
        Name of the group.
    timeout_s
        Seconds a function waits for the one before it to end.
    hold_timeout_s
        The same for a gang, whose other groups wait as well.
    """

    def __init__(self, group: str, timeout_s: float, hold_timeout_s: float) -> None:
        self._group = group
        self._timeout_s = timeout_s
        self._hold_timeout_s = hold_timeout_s
        self._lock = threading.Lock()
        self._holder = ""
        self._counting = threading.Lock()
        self._num_waiting = 0
        self._is_closed = False

    @contextmanager
    def of(self, holder: str, who: str) -> Iterator[None]:
        """Have the group for a function.

        Raises
        ------
        LeaseError
            Another function did not leave the group in time.
        ServiceError
            The service is closing.
        """
        self._take(holder, who, self._timeout_s)
        try:
            yield
        finally:
            self.let_go(holder)

    @contextmanager
    def between_functions(self) -> Iterator[None]:
        """Wait until no function runs, and let none begin."""
        with self._lock:
            yield

    def hold(self, holder: str) -> None:
        """Run nothing until `let_go`: a gang runs whose lead is another group.

        Raises
        ------
        LeaseError
            What runs here did not end in time.
        """
        self._take(holder, f"gang {holder!r}", self._hold_timeout_s)

    def let_go(self, holder: str) -> None:
        """End `hold`; one that ended already is none."""
        if self._holder == holder:
            self._holder = ""
            self._lock.release()

    @property
    def is_awaited(self) -> bool:
        """Whether somebody waits for whoever has the group."""
        return self._num_waiting > 0

    def is_held_by(self, holder: str) -> bool:
        """Whether a function has the group."""
        return self._holder == holder

    def close(self) -> None:
        """Let no further function begin."""
        self._is_closed = True

    def _take(self, holder: str, who: str, timeout_s: float) -> None:
        if not self._wait(timeout_s):
            raise LeaseError(
                f"{who} waited {timeout_s:.0f} s for the function before it to leave group "
                f"{self._group!r}; cancel that one's job, or restart the worker"
            )
        if self._is_closed:
            self._lock.release()
            raise ServiceError(f"the service of group {self._group!r} is closing")
        self._holder = holder

    def _wait(self, timeout_s: float) -> bool:
        """Wait for the lock; whether it was had in time."""
        if self._lock.acquire(blocking=False):
            return True
        with self._counting:
            self._num_waiting += 1
        try:
            return self._lock.acquire(timeout=timeout_s)
        finally:
            with self._counting:
                self._num_waiting -= 1
