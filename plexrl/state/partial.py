"""Reads bytes of a version and verifies them: the whole, or what another layout needs of it.

Checksums stand in the manifest for every grain, so a range costs the grains it touches and
not the whole state. Neighbouring grains are read at once and verified by one checksum, which
follows from theirs.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from threading import local

from plexrl.errors import IntegrityError, StateError
from plexrl.state.checksums import GRAIN_BYTES, checksum_of_grains, crc32c
from plexrl.state.draining import Partner, for_all
from plexrl.state.geometry import ChunkSpan
from plexrl.state.record import VersionRecord

STRETCH_BYTES = 5 * GRAIN_BYTES
"""Read at once: holds any slice of 1 MiB, and is in the processor's cache when it is verified."""
_MAX_BUFFERS = 256
"""Of one read; the system takes 1,024."""

_local = local()

Range = tuple[int, int]
"""``(first byte, byte after the last)`` in the state's buffer."""

Copy = tuple[int, int, int]
"""``(first byte in the state, byte after the last, offset in the target)``."""

ReadChunk = Callable[[ChunkSpan, Sequence[memoryview], int], int]
"""Fills buffers from an offset in a chunk; returns bytes, fewer at the chunk's end."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """Neighbouring grains that are read at once, and where which of their bytes go."""

    start: int
    """First byte in the state: that of a grain."""
    stop: int
    copies: tuple[Copy, ...]
    """In order of their bytes."""


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


def stretches(ranges: Sequence[Range], nbytes: int) -> tuple[Stretch, ...]:
    """What to read for byte ranges of a state of `nbytes` bytes: each grain once, in order."""
    copies: list[Copy] = []
    offset = 0
    for start, stop in ranges:
        if start < stop:
            copies.append((start, stop, offset))
            offset += stop - start
    runs: list[tuple[int, int, list[Copy]]] = []
    for copy in sorted(copies):
        first = copy[0] // GRAIN_BYTES * GRAIN_BYTES
        last = min(nbytes, -(-copy[1] // GRAIN_BYTES) * GRAIN_BYTES)
        if runs and first < runs[-1][1]:
            begin, end, own = runs[-1]
            runs[-1] = begin, max(end, last), own
            own.append(copy)
        else:
            runs.append((first, last, [copy]))
    return tuple(stretch for run in runs for stretch in _cut(*run))


def _cut(start: int, stop: int, copies: Sequence[Copy]) -> Iterator[Stretch]:
    firsts = range(start, stop, STRETCH_BYTES)
    parts: list[list[Copy]] = [[] for _ in firsts]
    for first, last, offset in copies:
        for number in range(
            (first - start) // STRETCH_BYTES, (last - 1 - start) // STRETCH_BYTES + 1
        ):
            low = max(first, firsts[number])
            high = min(last, firsts[number] + STRETCH_BYTES)
            parts[number].append((low, high, offset + low - first))
    for begin, part in zip(firsts, parts, strict=True):
        yield Stretch(begin, min(stop, begin + STRETCH_BYTES), tuple(part))


def _scratch() -> memoryview:
    """A buffer for one stretch, one for each thread: new pages cost more than the read."""
    if not hasattr(_local, "buffer"):
        _local.buffer = memoryview(bytearray(STRETCH_BYTES))
    buffer: memoryview = _local.buffer
    return buffer


def _segments(stretch: Stretch, into: memoryview) -> list[memoryview] | None:
    """Buffers that together take the stretch: parts of the target, scratch between them.

    None where two copies overlap, so that no split serves both, or where they are too many.
    """
    begin, end = stretch.start, stretch.stop
    start, stop, offset = stretch.copies[0]
    if start == begin and stop == end:
        return [into[offset : offset + stop - start]]
    if len(stretch.copies) > _MAX_BUFFERS // 2 - 1:
        return None
    scratch = _scratch()
    found: list[memoryview] = []
    position = begin
    for start, stop, offset in stretch.copies:
        if start < position:
            return None
        if start > position:
            found.append(scratch[position - begin : start - begin])
        found.append(into[offset : offset + stop - start])
        position = stop
    if position < end:
        found.append(scratch[position - begin : end - begin])
    return found


def _first_bytes(buffers: list[memoryview], nbytes: int) -> list[memoryview]:
    """Take the first bytes of the buffers away and return them."""
    taken: list[memoryview] = []
    while nbytes:
        head = buffers[0][:nbytes]
        nbytes -= len(head)
        taken.append(head)
        if len(head) == len(buffers[0]):
            buffers.pop(0)
        else:
            buffers[0] = buffers[0][len(head) :]
    return taken


class _Reading:
    """Reads stretches of one version; several threads may."""

    __slots__ = ("_chunks", "_into", "_read", "_record", "_starts")

    def __init__(self, record: VersionRecord, into: memoryview, read: ReadChunk):
        self._record = record
        self._into = into
        self._read = read
        self._chunks = record.chunks
        self._starts = [chunk.start for chunk in self._chunks]

    def stretch(self, stretch: Stretch) -> int:
        """Read and verify a stretch; returns its bytes."""
        start, stop = stretch.start, stretch.stop
        segments = _segments(stretch, self._into)
        buffers = segments or [_scratch()[: stop - start]]
        self._fill(start, stop, buffers)
        checksum = 0
        for buffer in buffers:
            checksum = crc32c(buffer, checksum)
        if checksum != checksum_of_grains(self._record.grains, start, stop):
            raise IntegrityError(
                f"chunk {self._damaged(start, stop)} does not match its checksum "
                f"(bytes {start} to {stop} of the state)"
            )
        if segments is None:
            for first, last, offset in stretch.copies:
                self._into[offset : offset + last - first] = buffers[0][
                    first - start : last - start
                ]
        return stop - start

    def _chunks_of(self, start: int, stop: int) -> Sequence[ChunkSpan]:
        """Chunks that hold bytes of the range, in order."""
        first = bisect_right(self._starts, start) - 1
        return self._chunks[first : bisect_right(self._starts, stop - 1, first)]

    def _fill(self, start: int, stop: int, buffers: Sequence[memoryview]) -> None:
        chunks = self._chunks_of(start, stop)
        left = list(buffers)
        for chunk in chunks:
            first, last = max(chunk.start, start), min(chunk.stop, stop)
            part = left if len(chunks) == 1 else _first_bytes(left, last - first)
            if self._read(chunk, part, first - chunk.start) != last - first:
                raise IntegrityError(f"chunk {chunk.key} is shorter than written")

    def _damaged(self, start: int, stop: int) -> str:
        """Which chunks of a range are damaged; all of them if that cannot be told any more."""
        expected = dict(zip(self._starts, self._record.checksums, strict=True))
        chunks = self._chunks_of(start, stop)
        names = []
        for chunk in chunks:
            content = memoryview(bytearray(chunk.stop - chunk.start))
            self._read(chunk, [content], 0)
            if crc32c(bytes(chunk.pad_bytes), crc32c(content)) != expected[chunk.start]:
                names.append(chunk.key)
        return " and ".join(names or [chunk.key for chunk in chunks])


def read_verified(
    record: VersionRecord,
    ranges: Sequence[Range],
    into: memoryview,
    partner: Partner,
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
    reading = _Reading(record, into, read)
    return sum(for_all(partner, reading.stretch, [stretches(ranges, nbytes)]))
