"""Moves one version between arena and disk: chunk objects directly, each byte touched once."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain, repeat
from pathlib import Path
from threading import Lock

from plexrl.core.states import Manifest
from plexrl.errors import IntegrityError
from plexrl.state import files
from plexrl.state.checksums import (
    Piece,
    chunk_checksum,
    crc32c,
    digest_of_grains,
    folded,
    measured,
    pieces,
    trailer,
)
from plexrl.state.draining import Call, Partner, for_all
from plexrl.state.geometry import CRC_BYTES, ArraySpan, ChunkSpan, all_chunks, zarr_documents
from plexrl.state.partial import Range, read_verified
from plexrl.state.record import VersionRecord, record_from_document, record_to_document

ROOT_DOCUMENT = "zarr.json"
BLOCK_BYTES = 1 << 20
"""Written at once: in the processor's cache when the system copies what was checksummed."""
READ_BYTES = 2 << 20
"""Read at once: nearly in the processor's cache when it is verified, and few calls."""
_LAST_READS = READ_BYTES // 4 * 3, READ_BYTES // 4
"""The last reads of a chunk are smaller: whoever is done first takes the last one of the other."""


class _ChunkWrite:
    """One chunk object being written; complete, and synced, with the last of its blocks."""

    __slots__ = (
        "_durable",
        "_fd",
        "_is_there",
        "_lock",
        "_num_left",
        "_parts",
        "_path",
        "checksum",
        "chunk",
    )

    def __init__(self, folder: Path, chunk: ChunkSpan, *, durable: bool, is_there: bool):
        self.chunk = chunk
        self.checksum = 0
        """Of the chunk object, once it is complete."""
        self._path = folder / chunk.key
        self._durable = durable
        self._is_there = is_there
        self._fd: int | None = None
        self._lock = Lock()
        self._parts: list[Piece] = []
        self._num_left = len(self.blocks())

    def blocks(self) -> list[tuple[int, int]]:
        """Byte ranges to be written, in order."""
        return list(pieces(self.chunk.start, self.chunk.stop, BLOCK_BYTES))

    def write(self, view: memoryview, start: int, stop: int) -> list[Piece]:
        """Write one block, from whichever thread; returns its pieces."""
        with self._lock:
            if self._fd is None:
                self._fd = (files.reopen if self._is_there else files.create)(self._path)
        block = view[start:stop]
        parts = measured(block, start, stop)
        files.write_at(self._fd, [block], start - self.chunk.start)
        with self._lock:
            self._parts += parts
            self._num_left -= 1
            is_last = self._num_left == 0
        if is_last:
            self._finish(self._fd)
        return parts

    def _finish(self, fd: int) -> None:
        padding = bytes(self.chunk.pad_bytes)
        self.checksum = chunk_checksum(self._parts, padding)
        tail = [padding, trailer(self.checksum)]
        files.write_at(fd, tail, self.chunk.stop - self.chunk.start)
        if self._durable:
            files.sync(fd)

    def close(self) -> None:
        """Close the file, complete or not."""
        if self._fd is not None:
            os.close(self._fd)


def _write_chunks(
    folder: Path,
    view: memoryview,
    chunks: Sequence[ChunkSpan],
    partner: Partner,
    *,
    durable: bool,
    are_there: bool,
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Checksums of the grains and of the chunk objects written."""
    writes = [_ChunkWrite(folder, c, durable=durable, is_there=are_there) for c in chunks]

    def write(item: tuple[_ChunkWrite, int, int]) -> list[Piece]:
        chunk_write, start, stop = item
        return chunk_write.write(view, start, stop)

    lanes = [[(each, start, stop) for start, stop in each.blocks()] for each in writes]
    try:
        parts = chain.from_iterable(for_all(partner, write, lanes))
    finally:
        for each in writes:
            each.close()
    return folded(parts), tuple(each.checksum for each in writes)


def write_version(
    folder: Path,
    manifest: Manifest,
    view: memoryview,
    spans: tuple[ArraySpan, ...],
    partner: Partner,
    *,
    durable: bool,
    spare: Path | None,
) -> int:
    """Write a version into a folder that does not exist; it is visible from the last step on.

    Chunks and array metadata come first and reach the disk; then the root document is
    renamed into place and the folder synced.

    Parameters
    ----------
    spare
        Folder with arrays of these spans that nobody needs any more, which are moved out of
        it and written over; None: all is made new.

    Returns
    -------
    int
        Bytes written.

    Raises
    ------
    IntegrityError
        The bytes in the arena are not those the manifest was made for.
    OSError
        The disk refuses.
    """
    folder.mkdir()
    _make_arrays(folder, spans, spare)
    chunks = all_chunks(spans)
    grains, checksums = _write_chunks(
        folder, view, chunks, partner, durable=durable, are_there=spare is not None
    )
    found = digest_of_grains(grains, len(view))
    if found != manifest.digest:
        raise IntegrityError(
            f"{manifest.ref}: the arena has digest {found[:16]}…, its manifest says "
            f"{manifest.digest[:16]}…; it was changed after its digest was taken"
        )
    total = sum(chunk.file_bytes for chunk in chunks)
    documents = zarr_documents(spans)
    for span in spans:
        content = documents[f"{span.name}/{ROOT_DOCUMENT}"].encode()
        # One that is there has this content, but may never have been synced.
        if durable or spare is None:
            path = folder / span.name / ROOT_DOCUMENT
            total += files.write_file(path, content, durable=durable)
        if durable:
            files.sync_folder(folder / span.name)
    root = record_to_document(VersionRecord(manifest, spans, grains, checksums))
    return total + files.write_file_atomically(folder / ROOT_DOCUMENT, root, durable=durable)


def _make_arrays(folder: Path, spans: tuple[ArraySpan, ...], spare: Path | None) -> None:
    for span in spans:
        if spare is None:
            (folder / span.name).mkdir()
        else:
            files.replace(spare / span.name, folder / span.name)


def read_record(folder_fd: int) -> VersionRecord:
    """Read the root document of a version.

    Raises
    ------
    FileNotFoundError
        There is none: the version does not exist.
    IntegrityError
        It is damaged.
    """
    return record_from_document(files.read_file(ROOT_DOCUMENT, folder_fd))


@contextmanager
def opened_chunks(folder_fd: int) -> Iterator[Callable[[ChunkSpan], int]]:
    """Gives descriptors of chunk objects, each opened once and closed at the end.

    Raises
    ------
    IntegrityError
        Of the descriptor asked for: the chunk is missing, or has another size than was written.
    """
    fds: dict[str, int] = {}
    lock = Lock()

    def descriptor(chunk: ChunkSpan) -> int:
        with lock:
            if chunk.key not in fds:
                fds[chunk.key] = _open_chunk(folder_fd, chunk)
        return fds[chunk.key]

    try:
        yield descriptor
    finally:
        for fd in fds.values():
            os.close(fd)


def _open_chunk(folder_fd: int, chunk: ChunkSpan) -> int:
    try:
        fd = os.open(chunk.key, os.O_RDONLY, dir_fd=folder_fd)
    except FileNotFoundError as error:
        raise IntegrityError(f"chunk {chunk.key} is missing") from error
    held = os.fstat(fd).st_size
    if held != chunk.file_bytes:
        os.close(fd)
        raise IntegrityError(f"chunk {chunk.key} has {held} bytes, written were {chunk.file_bytes}")
    return fd


def check_tail(chunk: ChunkSpan, checksum: int, tail: memoryview) -> None:
    """Check the padding and checksum that follow the bytes of a chunk.

    Raises
    ------
    IntegrityError
        They are not those that were written.
    """
    if tail != bytes(chunk.pad_bytes) + trailer(checksum):
        raise IntegrityError(f"chunk {chunk.key} does not match its checksum (behind its bytes)")


class _ChunkRead:
    """One chunk object being read; verified with the last of its blocks."""

    __slots__ = (
        "_checksum",
        "_chunk",
        "_fd",
        "_folder_fd",
        "_lock",
        "_num_left",
        "_parts",
        "is_verified",
    )

    def __init__(self, folder_fd: int, chunk: ChunkSpan, checksum: int):
        self._chunk = chunk
        self._checksum = checksum
        self._folder_fd = folder_fd
        self._fd: int | None = None
        self._lock = Lock()
        self._parts: list[Piece] = []
        self._num_left = 0
        self.is_verified = False
        """Whether every block was read, and found to be as it was written."""

    def blocks(self) -> list[tuple[_ChunkRead, int, int]]:
        """Byte ranges to be read, in order, each behind what reads it.

        All but the first have one of three lengths, for which there are tables to combine
        their checksums.
        """
        start, stop = self._chunk.start, self._chunk.stop
        found = []
        for nbytes in chain(reversed(_LAST_READS), repeat(READ_BYTES)):
            is_first = stop - start < nbytes * 3 // 2
            found.append((self, start if is_first else stop - nbytes, stop))
            if is_first:
                break
            stop -= nbytes
        self._num_left = len(found)
        return found[::-1]

    def read(self, view: memoryview, start: int, stop: int) -> None:
        """Read one block, from whichever thread.

        Raises
        ------
        IntegrityError
            The chunk is missing, has another size or other bytes than were written.
        """
        chunk = self._chunk
        with self._lock:
            if self._fd is None:
                self._fd = _open_chunk(self._folder_fd, chunk)
        block = view[start:stop]
        tail = memoryview(bytearray(chunk.pad_bytes + CRC_BYTES if stop == chunk.stop else 0))
        num_read = files.read_at(self._fd, [block, tail], start - chunk.start)
        if num_read != len(block) + len(tail):
            raise IntegrityError(f"chunk {chunk.key} is shorter than written")
        if tail:
            check_tail(chunk, self._checksum, tail)
        part = start, stop - start, crc32c(block)
        with self._lock:
            self._parts.append(part)
            self._num_left -= 1
            is_last = self._num_left == 0
        if is_last:
            self.close()
            if chunk_checksum(self._parts, bytes(chunk.pad_bytes)) != self._checksum:
                raise IntegrityError(f"chunk {chunk.key} does not match its checksum")
            self.is_verified = True

    def close(self) -> None:
        """Close the file, complete or not."""
        fd, self._fd = self._fd, None
        if fd is not None:
            os.close(fd)


def read_bytes(folder_fd: int, record: VersionRecord, view: memoryview, call: Call) -> None:
    """Read the bytes of a version into a buffer, and verify every one of them.

    Raises
    ------
    IntegrityError
        A chunk is missing, has another size or other bytes than were written. The buffer
        then holds anything.
    """
    reads = [
        _ChunkRead(folder_fd, chunk, checksum)
        for chunk, checksum in zip(record.chunks, record.checksums, strict=True)
    ]

    def read(item: tuple[_ChunkRead, int, int]) -> None:
        chunk_read, start, stop = item
        chunk_read.read(view, start, stop)

    try:
        call.for_all(read, [each.blocks() for each in reads])
    finally:
        for each in reads:
            each.close()
    assert all(each.is_verified for each in reads)


def read_ranges(
    folder_fd: int,
    record: VersionRecord,
    ranges: Sequence[Range],
    into: memoryview,
    partner: Partner,
) -> int:
    """`plexrl.state.partial.read_verified` from the folder of a version."""
    with opened_chunks(folder_fd) as descriptor:

        def read(chunk: ChunkSpan, buffers: Sequence[memoryview], offset: int) -> int:
            return files.read_at(descriptor(chunk), buffers, offset)

        return read_verified(record, ranges, into, partner, read)
