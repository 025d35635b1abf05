"""Checksums that a state carries from the arena to the disk and back.

One crc32c per grain of 256 KiB is computed once. The checksum of a chunk object (the Zarr
codec's) and the digest of a whole state both follow from them without a second pass over
the bytes, since crc32c of a concatenation is a linear function of the parts' checksums.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache

import numpy as np
from awscrt import checksums

from plexrl.errors import IntegrityError

GRAIN_BYTES = 1 << 18
"""One checksum each: a slice of 1 MiB reads a quarter more than its bytes at most, and the
checksums take 32 ppm of them in the manifest."""

Buffer = bytes | bytearray | memoryview


def crc32c(view: Buffer, start: int = 0) -> int:
    """Checksum (Castagnoli) of the bytes, continuing from the checksum `start`.

    Other threads run meanwhile.
    """
    return int(checksums.crc32c(view, start))


@lru_cache(maxsize=128)
def _shift_tables(nbytes: int) -> tuple[tuple[int, ...], ...]:
    """Four tables, one per byte of a checksum: what it becomes when `nbytes` bytes follow."""
    zeros = bytes(nbytes)
    constant = crc32c(zeros)
    columns = [crc32c(zeros, 1 << bit) ^ constant for bit in range(32)]
    tables = []
    for byte in range(4):
        table = [0] * 256
        for value in range(1, 256):
            low = value & -value
            table[value] = table[value ^ low] ^ columns[8 * byte + low.bit_length() - 1]
        tables.append(tuple(table))
    return tuple(tables)


def combine(first: int, second: int, second_nbytes: int) -> int:
    """Checksum of a concatenation, given both checksums and the length of the second part."""
    if second_nbytes == 0:
        return first
    if first == 0:
        return second
    t0, t1, t2, t3 = _shift_tables(second_nbytes)
    shifted = t0[first & 255] ^ t1[first >> 8 & 255] ^ t2[first >> 16 & 255] ^ t3[first >> 24]
    return shifted ^ second


def combine_all(parts: Iterable[tuple[int, int]]) -> int:
    """Checksum of a concatenation, given ``(checksum, nbytes)`` of its parts in order."""
    total = 0
    for checksum, nbytes in parts:
        total = combine(total, checksum, nbytes)
    return total


def pieces(start: int, stop: int, step: int = GRAIN_BYTES) -> Iterator[tuple[int, int]]:
    """Cut the byte range at the multiples of `step`."""
    while start < stop:
        end = min(stop, (start // step + 1) * step)
        yield start, end
        start = end


Piece = tuple[int, int, int]
"""``(first byte in the state, nbytes, crc32c)`` of a byte range that crosses no grain."""


def measured(view: memoryview, start: int, stop: int) -> list[Piece]:
    """Pieces of a byte range of a state; `view` holds that range alone."""
    return [(a, b - a, crc32c(view[a - start : b - start])) for a, b in pieces(start, stop)]


def folded(parts: Iterable[Piece]) -> tuple[int, ...]:
    """Checksums of the grains of which these are all the pieces, in any order."""
    grains: dict[int, int] = {}
    for start, nbytes, crc in sorted(parts):
        index = start // GRAIN_BYTES
        grains[index] = combine(grains[index], crc, nbytes) if index in grains else crc
    return tuple(grains.values())


def chunk_checksum(parts: Iterable[Piece], padding: Buffer) -> int:
    """Checksum of a chunk object of these pieces and this padding."""
    return crc32c(padding, combine_all((crc, nbytes) for _, nbytes, crc in sorted(parts)))


def trailer(checksum: int) -> bytes:
    """What Zarr's crc32c codec writes behind a chunk of this checksum."""
    return checksum.to_bytes(4, "little")


def checksum_of_grains(grains: Sequence[int], start: int, stop: int) -> int:
    """Checksum of a byte range of a state that consists of whole grains.

    Parameters
    ----------
    grains
        Checksums of all grains of the state.
    """
    t0, t1, t2, t3 = _shift_tables(GRAIN_BYTES)
    first, end = start // GRAIN_BYTES, stop // GRAIN_BYTES
    total = 0
    for crc in grains[first:end]:
        total = (
            t0[total & 255] ^ t1[total >> 8 & 255] ^ t2[total >> 16 & 255] ^ t3[total >> 24] ^ crc
        )
    rest = stop - end * GRAIN_BYTES
    return combine(total, grains[end], rest) if rest else total


def grain_checksums(view: memoryview) -> tuple[int, ...]:
    """Checksum of every grain; the last grain may be short."""
    return tuple(crc for _, _, crc in measured(view, 0, len(view)))


def digest_of_grains(grains: Iterable[int], nbytes: int) -> str:
    """Digest of a state of `nbytes` bytes whose grains have these checksums."""
    head = struct.pack("<QQ", GRAIN_BYTES, nbytes)
    return hashlib.sha256(head + np.fromiter(grains, np.dtype("<u4")).tobytes()).hexdigest()


def digest_of(view: memoryview, grains: tuple[int, ...] | None = None) -> str:
    """Digest of a state: SHA-256 over length and grain checksums, hexadecimal.

    It finds damage, not malice: bytes can be made on purpose that have the same digest.

    Parameters
    ----------
    view
        The bytes, shape ``(nbytes,)``.
    grains
        Their `grain_checksums`, where the caller has them already.
    """
    return digest_of_grains(grain_checksums(view) if grains is None else grains, len(view))


def verify(view: memoryview, expected: str, name: str) -> None:
    """Check bytes against their digest.

    Raises
    ------
    IntegrityError
        The digest differs; the message names `name`.
    """
    found = digest_of(view)
    if found != expected:
        raise IntegrityError(
            f"{name}: the bytes have digest {found[:16]}…, the manifest says {expected[:16]}…; "
            "do not use them, fetch the last good version"
        )
