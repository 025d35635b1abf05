"""Moves one version between arena and objects at a URL."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import chain

from plexrl.core.states import Manifest
from plexrl.errors import IntegrityError
from plexrl.state.buckets import Bucket
from plexrl.state.checksums import (
    Piece,
    chunk_checksum,
    crc32c,
    digest_of_grains,
    folded,
    measured,
    trailer,
)
from plexrl.state.draining import Partner, for_all
from plexrl.state.geometry import CRC_BYTES, ChunkSpan, all_chunks, array_spans, zarr_documents
from plexrl.state.partial import Range, read_verified
from plexrl.state.record import VersionRecord, record_to_document
from plexrl.state.version_files import ROOT_DOCUMENT, check_tail


def _put_chunk(
    bucket: Bucket, folder: str, view: memoryview, chunk: ChunkSpan
) -> tuple[int, int, list[Piece]]:
    """Its first byte, its checksum, and its pieces."""
    padding = bytes(chunk.pad_bytes)
    content = view[chunk.start : chunk.stop]
    parts = measured(content, chunk.start, chunk.stop)
    checksum = chunk_checksum(parts, padding)
    bucket.put(f"{folder}/{chunk.key}", b"".join([content, padding, trailer(checksum)]))
    return chunk.start, checksum, parts


def write_objects(
    bucket: Bucket,
    folder: str,
    manifest: Manifest,
    view: memoryview,
    chunk_bytes: int,
    partner: Partner,
) -> int:
    """Write a version below a prefix, under a name of this attempt; visible with the last step.

    Returns
    -------
    int
        Bytes written.

    Raises
    ------
    FileExistsError
        Another attempt was first; what this one wrote is deleted.
    IntegrityError
        The bytes in the arena are not those the manifest was made for.
    StoreError
        The service refuses.
    """
    attempt = f"w{uuid.uuid4().hex[:12]}"
    spans = tuple(
        replace(span, name=f"{attempt}/{span.name}")
        for span in array_spans(manifest.layout, chunk_bytes)
    )

    put = partial(_put_chunk, bucket, folder, view)
    chunks = all_chunks(spans)
    written = sorted(for_all(partner, put, [chunks]))
    grains = folded(chain.from_iterable(parts for _, _, parts in written))
    if digest_of_grains(grains, len(view)) != manifest.digest:
        bucket.delete(bucket.keys(f"{folder}/{attempt}/"))
        raise IntegrityError(
            f"{manifest.ref}: the bytes do not have the digest of its manifest; they were changed "
            "after it was taken"
        )
    for path, text in zarr_documents(spans).items():
        if path != ROOT_DOCUMENT:
            bucket.put(f"{folder}/{path}", text.encode())
    checksums = tuple(checksum for _, checksum, _ in written)
    root = record_to_document(VersionRecord(manifest, spans, grains, checksums))
    try:
        bucket.put(f"{folder}/{ROOT_DOCUMENT}", root, is_new=True)
    except FileExistsError:
        bucket.delete(bucket.keys(f"{folder}/{attempt}/"))
        raise
    return sum(chunk.file_bytes for chunk in chunks) + len(root)


def read_objects(
    bucket: Bucket, folder: str, record: VersionRecord, into: memoryview, partner: Partner
) -> None:
    """Read the bytes of a version into a buffer, and verify every one of them.

    Raises
    ------
    IntegrityError
        A chunk is missing, has another size or other bytes than were written.
    StoreError
        The service refuses.
    """

    def get(item: tuple[ChunkSpan, int]) -> None:
        chunk, checksum = item
        try:
            content = bucket.get(f"{folder}/{chunk.key}")
        except FileNotFoundError as error:
            raise IntegrityError(f"chunk {chunk.key} is missing") from error
        if len(content) != chunk.file_bytes:
            raise IntegrityError(
                f"chunk {chunk.key} has {len(content)} bytes, written were {chunk.file_bytes}"
            )
        nbytes = chunk.stop - chunk.start
        check_tail(chunk, checksum, content[nbytes:])
        if crc32c(content[:-CRC_BYTES]) != checksum:
            raise IntegrityError(f"chunk {chunk.key} does not match its checksum")
        into[chunk.start : chunk.stop] = content[:nbytes]

    for_all(partner, get, [zip(record.chunks, record.checksums, strict=True)])


def read_object_ranges(
    bucket: Bucket,
    folder: str,
    record: VersionRecord,
    ranges: Sequence[Range],
    into: memoryview,
    partner: Partner,
) -> int:
    """`plexrl.state.partial.read_verified` from objects below a prefix."""

    def read(chunk: ChunkSpan, buffers: Sequence[memoryview], offset: int) -> int:
        nbytes = sum(map(len, buffers))
        try:
            found = bucket.get_range(f"{folder}/{chunk.key}", offset, offset + nbytes)
        except FileNotFoundError as error:
            raise IntegrityError(f"chunk {chunk.key} is missing") from error
        left = found
        for buffer in buffers:
            buffer[: len(left)] = left[: len(buffer)]
            left = left[len(buffer) :]
        return len(found)

    return read_verified(record, ranges, into, partner, read)
