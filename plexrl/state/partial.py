"""Reads some bytes of a version and verifies them: a reader with another parallel layout.

Checksums stand in the manifest for every grain, so a range costs the grains it touches and
not the whole state.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial
from threading import local

from plexrl.errors import IntegrityError, StateError
from plexrl.state import files
from plexrl.state.checksums import GRAIN_BYTES, crc32c, digest_of_grains
from plexrl.state.draining import for_all
from plexrl.state.geometry import ChunkSpan
from plexrl.state.record import VersionRecord
from plexrl.state.version_files import opened_chunks

_local = local()

Range = tuple[int, int]
"""``(first byte, byte after the last)`` in the state's buffer."""

ReadChunk = Callable[[ChunkSpan, memoryview, int], int]
"""Fills a buffer from an offset in a chunk; returns bytes, fewer at the chunk's end."""


@dataclass(frozen=True, slots=True)
class GrainRead:
    """One grain to read, and where which of its bytes go."""

    index: int
    start: int
    """First byte of the grain in the state."""
    stop: int
    copies: tuple[tuple[int, int, int], ...]
    """``(first byte in the state, byte after the last, offset in the target)``."""


def check_ranges(ranges: Sequence[Range], nbytes: int, into_nbytes: int) -> None:
    """Check that ranges lie in a state and fill the target.

    Raises
    ------
    StateError
        They do not.
    """
    for start, stop in ranges:
        if not 0 <= start <= stop <= nbytes:
            raise StateError(
                f"the byte range {start} to {stop} does not lie in a state of {nbytes} bytes; "
                "take ranges from its layout"
            )
    total = sum(stop - start for start, stop in ranges)
    if total != into_nbytes:
        raise StateError(
            f"the ranges have {total} bytes, the buffer {into_nbytes}; give a buffer of their size"
        )


def grain_reads(ranges: Sequence[Range], nbytes: int) -> tuple[GrainRead, ...]:
    """The grains that ranges touch, each once, in order."""
    copies: dict[int, list[tuple[int, int, int]]] = {}
    offset = 0
    for start, stop in ranges:
        position = start
        while position < stop:
            index = position // GRAIN_BYTES
            end = min(stop, (index + 1) * GRAIN_BYTES)
            copies.setdefault(index, []).append((position, end, offset))
            offset += end - position
            position = end
    return tuple(
        GrainRead(
            index,
            index * GRAIN_BYTES,
            min(nbytes, (index + 1) * GRAIN_BYTES),
            tuple(copies[index]),
        )
        for index in sorted(copies)
    )


def _scratch() -> memoryview:
    """A buffer for one grain, one for each thread: new pages cost more than the read."""
    if not hasattr(_local, "buffer"):
        _local.buffer = memoryview(bytearray(GRAIN_BYTES))
    buffer: memoryview = _local.buffer
    return buffer


def _chunks_of(chunks: Sequence[ChunkSpan], start: int, stop: int) -> Sequence[ChunkSpan]:
    """Chunks that hold bytes of the range, in order."""
    first = bisect_right(chunks, start, key=_start_of) - 1
    return chunks[first : bisect_right(chunks, stop - 1, key=_start_of)]


def _start_of(chunk: ChunkSpan) -> int:
    return chunk.start


def _segments(grain: GrainRead, into: memoryview) -> list[memoryview] | None:
    """Buffers that together take the grain: parts of the target, scratch between them.

    None where two copies overlap, so that no split serves both.
    """
    scratch = _scratch()
    found: list[memoryview] = []
    position = grain.start
    for start, stop, offset in sorted(grain.copies):
        if start < position:
            return None
        found.append(scratch[position - grain.start : start - grain.start])
        found.append(into[offset : offset + stop - start])
        position = stop
    found.append(scratch[position - grain.start : grain.stop - grain.start])
    return [buffer for buffer in found if len(buffer)]


def _read_segment(
    read: ReadChunk, chunks: Sequence[ChunkSpan], start: int, buffer: memoryview
) -> None:
    stop = start + len(buffer)
    for chunk in _chunks_of(chunks, start, stop):
        first, last = max(chunk.start, start), min(chunk.stop, stop)
        part = buffer[first - start : last - start]
        if read(chunk, part, first - chunk.start) != last - first:
            raise IntegrityError(f"chunk {chunk.key} is shorter than written")


def _read_grain(
    read: ReadChunk,
    chunks: Sequence[ChunkSpan],
    record: VersionRecord,
    into: memoryview,
    grain: GrainRead,
) -> int:
    nbytes = grain.stop - grain.start
    whole = _scratch()[:nbytes]
    segments = _segments(grain, into)
    position, checksum = grain.start, 0
    for buffer in segments or [whole]:
        _read_segment(read, chunks, position, buffer)
        checksum = crc32c(buffer, checksum)
        position += len(buffer)
    if checksum != record.grains[grain.index]:
        raise IntegrityError(f"bytes {grain.start} to {grain.stop} do not match their checksum")
    if segments is None:
        for start, stop, offset in grain.copies:
            into[offset : offset + stop - start] = whole[start - grain.start : stop - grain.start]
    return nbytes


def read_grains(
    record: VersionRecord,
    ranges: Sequence[Range],
    into: memoryview,
    executor: Executor,
    read: ReadChunk,
) -> int:
    """Read byte ranges of a version one behind the other into a buffer, and verify them.

    Parameters
    ----------
    read
        How bytes of a chunk come from where the version lies.

    Returns
    -------
    int
        Bytes read: whole grains.

    Raises
    ------
    IntegrityError
        A grain is not as it was written; the buffer then holds anything.
    StateError
        A range does not lie in the state, or the buffer has another size.
    """
    nbytes = record.manifest.layout.nbytes
    check_ranges(ranges, nbytes, len(into))
    if digest_of_grains(record.grains, nbytes) != record.manifest.digest:
        raise IntegrityError("its checksums do not have the digest of its manifest")
    chunks = [chunk for span in record.spans for chunk in span.chunks()]
    work = partial(_read_grain, read, chunks, record, into)
    return sum(for_all(executor, work, [grain_reads(ranges, nbytes)]))


def read_ranges(
    folder_fd: int,
    record: VersionRecord,
    ranges: Sequence[Range],
    into: memoryview,
    executor: Executor,
) -> int:
    """`read_grains` from the folder of a version."""
    with opened_chunks(folder_fd) as descriptor:

        def read(chunk: ChunkSpan, buffer: memoryview, offset: int) -> int:
            return files.read_at(descriptor(chunk), buffer, offset)

        return read_grains(record, ranges, into, executor, read)
