"""Moves one version between arena and disk: chunk objects directly, each byte touched once."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager
from pathlib import Path
from threading import Lock

from plexrl.core.states import Manifest
from plexrl.errors import IntegrityError
from plexrl.state import files
from plexrl.state.checksums import Piece, crc32c, digest_of_grains, folded, pieces, trailer_of
from plexrl.state.draining import for_all
from plexrl.state.geometry import CRC_BYTES, ArraySpan, ChunkSpan, zarr_documents
from plexrl.state.record import VersionRecord, record_from_document, record_to_document

ROOT_DOCUMENT = "zarr.json"


def _chunks(spans: Iterable[ArraySpan]) -> list[ChunkSpan]:
    return [chunk for span in spans for chunk in span.chunks()]


class _ChunkWrite:
    """One chunk object being written; complete, and synced, with the last of its pieces."""

    __slots__ = ("_durable", "_fd", "_lock", "_num_left", "_parts", "_path", "chunk")

    def __init__(self, folder: Path, chunk: ChunkSpan, *, durable: bool):
        self.chunk = chunk
        self._path = folder / chunk.key
        self._durable = durable
        self._fd: int | None = None
        self._lock = Lock()
        self._parts: list[Piece] = []
        self._num_left = len(self.pieces())

    def pieces(self) -> list[tuple[int, int]]:
        """Byte ranges to be written, in order."""
        return list(pieces(self.chunk.start, self.chunk.stop))

    def write(self, view: memoryview, start: int, stop: int) -> Piece:
        """Write one piece, from whichever thread."""
        with self._lock:
            if self._fd is None:
                self._fd = files.create(self._path)
        part = (start, stop - start, crc32c(view[start:stop]))
        files.write_at(self._fd, [view[start:stop]], start - self.chunk.start)
        with self._lock:
            self._parts.append(part)
            self._num_left -= 1
            is_last = self._num_left == 0
        if is_last:
            self._finish(self._fd)
        return part

    def _finish(self, fd: int) -> None:
        padding = bytes(self.chunk.pad_bytes)
        trailer = trailer_of(self._parts, padding)
        files.write_at(fd, [padding, trailer], self.chunk.stop - self.chunk.start)
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
    executor: Executor,
    *,
    durable: bool,
) -> list[Piece]:
    writes = [_ChunkWrite(folder, chunk, durable=durable) for chunk in chunks]

    def write(item: tuple[_ChunkWrite, int, int]) -> Piece:
        chunk_write, start, stop = item
        return chunk_write.write(view, start, stop)

    lanes = [[(each, start, stop) for start, stop in each.pieces()] for each in writes]
    try:
        return for_all(executor, write, lanes)
    finally:
        for each in writes:
            each.close()


def write_version(
    folder: Path,
    manifest: Manifest,
    view: memoryview,
    spans: tuple[ArraySpan, ...],
    executor: Executor,
    *,
    durable: bool,
) -> int:
    """Write a version into a folder that does not exist; it is visible from the last step on.

    Chunks and array metadata come first and reach the disk; then the root document is
    renamed into place and the folder synced.

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
    for span in spans:
        (folder / span.name).mkdir()
    chunks = _chunks(spans)
    grains = folded(_write_chunks(folder, view, chunks, executor, durable=durable))
    found = digest_of_grains(grains, len(view))
    if found != manifest.digest:
        raise IntegrityError(
            f"{manifest.ref}: the arena has digest {found[:16]}…, its manifest says "
            f"{manifest.digest[:16]}…; it was changed after its digest was taken"
        )
    total = sum(chunk.file_bytes for chunk in chunks)
    documents = zarr_documents(spans)
    for span in spans:
        path = folder / span.name / ROOT_DOCUMENT
        content = documents[f"{span.name}/{ROOT_DOCUMENT}"].encode()
        total += files.write_file(path, content, durable=durable)
        if durable:
            files.sync_folder(folder / span.name)
    root = record_to_document(VersionRecord(manifest, spans, grains))
    return total + files.write_file_atomically(folder / ROOT_DOCUMENT, root, durable=durable)


def read_record(folder_fd: int) -> VersionRecord:
    """Read the root document of a version.

    Raises
    ------
    FileNotFoundError
        There is none: the version does not exist.
    IntegrityError
        It is damaged.
    """
    fd = os.open(ROOT_DOCUMENT, os.O_RDONLY, dir_fd=folder_fd)
    with os.fdopen(fd, "rb") as file:
        return record_from_document(file.read())


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


def _check_trailer(fd: int, chunk: ChunkSpan, parts: Sequence[Piece]) -> None:
    tail = memoryview(bytearray(chunk.pad_bytes + CRC_BYTES))
    files.read_at(fd, tail, chunk.stop - chunk.start)
    check_trailer(chunk, parts, tail)


def check_trailer(chunk: ChunkSpan, parts: Sequence[Piece], tail: memoryview) -> None:
    """Check the padding and checksum that follow the bytes of a chunk.

    Raises
    ------
    IntegrityError
        They are not those of its pieces.
    """
    if tail[chunk.pad_bytes :] != trailer_of(parts, tail[: chunk.pad_bytes]):
        raise IntegrityError(f"chunk {chunk.key} does not match its checksum")


def read_bytes(folder_fd: int, record: VersionRecord, view: memoryview, executor: Executor) -> None:
    """Read the bytes of a version into a buffer, and verify every one of them.

    Raises
    ------
    IntegrityError
        A chunk is missing, has another size or other bytes than were written. The buffer
        then holds anything.
    """
    chunks = _chunks(record.spans)
    with opened_chunks(folder_fd) as descriptor:

        def read(item: tuple[ChunkSpan, int, int]) -> Piece:
            chunk, start, stop = item
            part = view[start:stop]
            files.read_at(descriptor(chunk), part, start - chunk.start)
            return start, stop - start, crc32c(part)

        lanes = [[(c, *piece) for piece in pieces(c.start, c.stop)] for c in chunks]
        parts = sorted(for_all(executor, read, lanes))
        position = 0
        for chunk, lane in zip(chunks, lanes, strict=True):
            own = parts[position : position + len(lane)]
            position += len(lane)
            _check_trailer(descriptor(chunk), chunk, own)
    if digest_of_grains(folded(parts), len(view)) != record.manifest.digest:
        raise IntegrityError("its bytes do not have the digest of its manifest")
