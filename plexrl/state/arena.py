"""Host memory of states: page-aligned, shared between processes, gone when they are gone."""

from __future__ import annotations

import itertools
import mmap
import os
import tempfile
from threading import Lock

from plexrl.errors import StateError

_serials = itertools.count()


def _anonymous_fd(nbytes: int) -> int:
    """Open a file of `nbytes` bytes that no folder lists."""
    if hasattr(os, "memfd_create"):
        fd = os.memfd_create("plexrl-arena")
    else:
        fd, path = tempfile.mkstemp(prefix="plexrl-arena-")
        os.unlink(path)  # noqa: PTH108
    try:
        os.ftruncate(fd, nbytes)
    except OSError as error:
        os.close(fd)
        raise StateError(
            f"cannot reserve {nbytes} bytes of shared memory: {error.strerror}; "
            "lower host_budget_bytes"
        ) from error
    return fd


class Arena:
    """One contiguous writable buffer that other processes map through its file descriptor.

    Parameters
    ----------
    nbytes
        Size of the buffer; the mapping is rounded up to whole pages.
    fd
        Descriptor of an arena that another process made; None makes a new one. Use `from_fd`.
    """

    __slots__ = ("_is_owner", "_map", "fd", "id", "nbytes", "view")

    fd: int
    """File descriptor, to be passed over a Unix socket; valid until `close`."""
    nbytes: int
    id: str
    """Names the memory, not its content: a reused arena keeps it, so mappings stay valid."""
    view: memoryview
    """The bytes, shape ``(nbytes,)``, writable."""

    def __init__(self, nbytes: int, *, fd: int | None = None):
        if nbytes < 0:
            raise StateError(f"an arena of {nbytes} bytes; give a size of at least 0")
        self._is_owner = fd is None
        self.fd = _anonymous_fd(max(nbytes, 1)) if fd is None else fd
        self.nbytes = nbytes
        self.id = f"{os.getpid()}-{next(_serials)}"
        self._map = mmap.mmap(self.fd, max(nbytes, 1))
        self.view = memoryview(self._map)[:nbytes]

    @classmethod
    def from_fd(cls, fd: int, nbytes: int) -> Arena:
        """Map the arena behind a descriptor received from another process; takes the descriptor.

        Raises
        ------
        StateError
            The file behind the descriptor is shorter than `nbytes`.
        """
        held = os.fstat(fd).st_size
        if held < max(nbytes, 1):
            raise StateError(f"descriptor {fd} holds {held} bytes, not an arena of {nbytes}")
        return cls(nbytes, fd=fd)

    @property
    def is_closed(self) -> bool:
        """Whether `close` was called."""
        return self.fd < 0

    def close(self) -> None:
        """Give the memory back; where slices of `view` are still alive, when the last one dies."""
        if self.fd < 0:
            return
        fd, self.fd = self.fd, -1
        try:
            self.view.release()
            self._map.close()
            if self._is_owner:
                # An engine may still map it: the pages go now, not when that process ends.
                os.ftruncate(fd, 0)
        except BufferError:
            # An array over a slice keeps the mapping alive and unmaps it when collected.
            self.view = memoryview(b"")
            del self._map
        finally:
            os.close(fd)

    def __repr__(self) -> str:
        return f"<Arena {self.id} {self.nbytes} bytes{' closed' if self.is_closed else ''}>"


class ArenaPool:
    """Reuses arenas of equal size, since new pages cost more than the copy into them.

    Parameters
    ----------
    max_bytes
        Bytes of arenas in use and idle together; idle ones are given back to stay below it.
    """

    def __init__(self, max_bytes: int):
        self._max_bytes = max_bytes
        self._idle: list[Arena] = []
        self._num_used_bytes = 0
        self._lock = Lock()

    @property
    def num_idle_bytes(self) -> int:
        """Bytes kept for reuse."""
        return sum(arena.nbytes for arena in self._idle)

    @property
    def num_used_bytes(self) -> int:
        """Bytes handed out."""
        return self._num_used_bytes

    def acquire(self, nbytes: int) -> Arena:
        """An arena of this size; its content is undefined."""
        with self._lock:
            self._num_used_bytes += nbytes
            for index in reversed(range(len(self._idle))):
                if self._idle[index].nbytes == nbytes:
                    return self._idle.pop(index)
            self._trim()
            try:
                return Arena(nbytes)
            except StateError:
                self._num_used_bytes -= nbytes
                raise

    def release(self, arena: Arena) -> None:
        """Take an arena back."""
        with self._lock:
            self._num_used_bytes -= arena.nbytes
            self._idle.append(arena)
            self._trim()

    def _trim(self) -> None:
        while self._idle and self._num_used_bytes + self.num_idle_bytes > self._max_bytes:
            self._idle.pop(0).close()

    def close(self) -> None:
        """Give all idle arenas back."""
        with self._lock:
            while self._idle:
                self._idle.pop().close()
