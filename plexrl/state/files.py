"""The only place that changes the disk, so that faults can be injected at every step."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from plexrl.errors import StoreAwayError, StoreError

_REMEDIES = {
    errno.ENOSPC: "the disk is full: free space there (running jobs repeat the write)",
    errno.EDQUOT: "the disk quota is used up: free space there (running jobs repeat the write)",
    errno.EFBIG: "a file size limit is reached: raise it (ulimit -f)",
    errno.EROFS: "the file system is read-only: give a folder that can be written",
    errno.EACCES: "permission denied: give a folder that this user may use",
    errno.EPERM: "not permitted: give a folder that this user may use",
    errno.ENOTDIR: "a part of the path is a file: give a path to a folder",
    errno.ENAMETOOLONG: "the name is too long for the file system: use a shorter job name",
    errno.EIO: "the disk reports an input/output error: check the hardware",
}


_MAY_PASS = frozenset(
    {
        errno.ENOSPC,
        errno.EDQUOT,
        errno.EFBIG,
        errno.EROFS,
        errno.EACCES,
        errno.EPERM,
        errno.EIO,
        errno.ENXIO,
        errno.ENODEV,
        errno.ENOTCONN,
        errno.ESTALE,
        errno.ETIMEDOUT,
    }
)
"""What somebody can repair while jobs wait: the store is the same afterwards."""


class _DiskErrors:
    """See `disk_errors`."""

    __slots__ = ("_action", "_path")

    def __init__(self, action: str, path: Path | str):
        self._action = action
        self._path = path

    def __enter__(self) -> None:
        pass

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if isinstance(error, OSError):
            remedy = _REMEDIES.get(error.errno or 0, f"{error.strerror or error}")
            told = StoreAwayError if error.errno in _MAY_PASS else StoreError
            raise told(f"cannot {self._action} {self._path}: {remedy}") from error


def disk_errors(action: str, path: Path | str) -> _DiskErrors:
    """Turn an `OSError` inside the block into one `StoreError` that says what to do."""
    return _DiskErrors(action, path)


def write_at(fd: int, buffers: Sequence[bytes | memoryview], offset: int) -> int:
    """Write the buffers into a file, however short the system's writes are; returns bytes."""
    left = [memoryview(buffer) for buffer in buffers if len(buffer)]
    total = 0
    while left:
        written = os.pwritev(fd, left, offset + total)
        total += written
        _drop(left, written)
    return total


def read_at(fd: int, buffers: Sequence[memoryview], offset: int) -> int:
    """Fill the buffers from a file; returns bytes, fewer than asked at the file's end."""
    total = os.preadv(fd, buffers, offset)
    expected = sum(map(len, buffers))
    if 0 < total < expected:
        left = list(buffers)
        _drop(left, total)
        while total < expected and (count := os.preadv(fd, left, offset + total)):
            total += count
            _drop(left, count)
    return total


def read_file(name: str, folder_fd: int) -> bytes:
    """Content of a file in an open folder.

    Raises
    ------
    FileNotFoundError
        There is none.
    """
    fd = os.open(name, os.O_RDONLY, dir_fd=folder_fd)
    try:
        nbytes = os.fstat(fd).st_size
        content = os.read(fd, nbytes)
        while len(content) < nbytes and (more := os.read(fd, nbytes - len(content))):
            content += more
        return content
    finally:
        os.close(fd)


def _drop(left: list[memoryview], nbytes: int) -> None:
    """Take the first bytes away, which have been moved."""
    while left and nbytes >= len(left[0]):
        nbytes -= len(left.pop(0))
    if nbytes:
        left[0] = left[0][nbytes:]


def create(path: Path) -> int:
    """Open a new file for writing; returns its descriptor."""
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)


def reopen(path: Path) -> int:
    """Open an existing file to write over it; returns its descriptor."""
    return os.open(path, os.O_WRONLY)


def remove_file(path: Path) -> None:
    """Remove a file."""
    path.unlink()


def sync(fd: int) -> None:
    """Wait until the file's bytes are on the disk."""
    os.fsync(fd)


def sync_folder(path: Path) -> None:
    """Wait until the folder's entries are on the disk."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        sync(fd)
    finally:
        os.close(fd)


def replace(source: Path, target: Path) -> None:
    """Rename in one step; a file of that name is replaced."""
    source.replace(target)


def write_file(path: Path, content: bytes, *, durable: bool) -> int:
    """Write a small file whole; returns bytes."""
    fd = create(path)
    try:
        written = write_at(fd, [content], 0)
        if durable:
            sync(fd)
    finally:
        os.close(fd)
    return written


def write_file_atomically(path: Path, content: bytes, *, durable: bool) -> int:
    """Make a small file appear whole or not at all; returns bytes."""
    # Named for the process: services of several groups open a new store at once. Hidden, it is
    # nobody's foreign file.
    draft = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    written = write_file(draft, content, durable=durable)
    replace(draft, path)
    if durable:
        sync_folder(path.parent)
    return written


def make_folder(path: Path, *, durable: bool) -> None:
    """Create a folder and its parents; durable: their entries are on the disk on return."""
    if path.is_dir():
        return
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    path.mkdir(parents=True, exist_ok=True)
    if durable:
        for folder in missing:
            sync_folder(folder.parent)


def remove_tree(path: Path) -> None:
    """Remove a folder with all in it; one that is gone is fine."""
    if path.exists():
        shutil.rmtree(path)


def tree_bytes(path: Path) -> int:
    """Bytes of the files below a folder."""
    return sum(entry.stat().st_size for entry in path.rglob("*") if entry.is_file())
