"""Moves one version between arena and objects at a URL."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import replace
from functools import partial
from itertools import chain

from plexrl.core.states import Manifest
from plexrl.errors import IntegrityError
from plexrl.state.buckets import Bucket
from plexrl.state.checksums import Piece, digest_of_grains, folded, measured, trailer_of
from plexrl.state.draining import for_all
from plexrl.state.geometry import ChunkSpan, array_spans, zarr_documents
from plexrl.state.partial import Range, read_grains
from plexrl.state.record import VersionRecord, record_to_document
from plexrl.state.version_files import ROOT_DOCUMENT, check_trailer


def _put_chunk(bucket: Bucket, folder: str, view: memoryview, chunk: ChunkSpan) -> list[Piece]:
    padding = bytes(chunk.pad_bytes)
    content = view[chunk.start : chunk.stop]
    parts = measured(content, chunk.start, chunk.stop)
    whole = b"".join([content, padding, trailer_of(parts, padding)])
    bucket.put(f"{folder}/{chunk.key}", whole)
    return parts


def write_objects(
    bucket: Bucket,
    folder: str,
    manifest: Manifest,
    view: memoryview,
    chunk_bytes: int,
    executor: Executor,
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
    chunks = [chunk for span in spans for chunk in span.chunks()]
    grains = folded(chain.from_iterable(for_all(executor, put, [chunks])))
    if digest_of_grains(grains, len(view)) != manifest.digest:
        bucket.delete(bucket.keys(f"{folder}/{attempt}/"))
        raise IntegrityError(
            f"{manifest.ref}: the bytes do not have the digest of its manifest; they were changed "
            "after it was taken"
        )
    for path, text in zarr_documents(spans).items():
        if path != ROOT_DOCUMENT:
            bucket.put(f"{folder}/{path}", text.encode())
    root = record_to_document(VersionRecord(manifest, spans, grains))
    try:
        bucket.put(f"{folder}/{ROOT_DOCUMENT}", root, is_new=True)
    except FileExistsError:
        bucket.delete(bucket.keys(f"{folder}/{attempt}/"))
        raise
    return sum(chunk.file_bytes for chunk in chunks) + len(root)


def read_objects(
    bucket: Bucket, folder: str, record: VersionRecord, into: memoryview, executor: Executor
) -> None:
    """Read the bytes of a version into a buffer, and verify every one of them.

    Raises
    ------
    IntegrityError
        A chunk is missing, has another size or other bytes than were written.
    StoreError
        The service refuses.
    """

    def get(chunk: ChunkSpan) -> list[Piece]:
        try:
            content = bucket.get(f"{folder}/{chunk.key}")
        except FileNotFoundError as error:
            raise IntegrityError(f"chunk {chunk.key} is missing") from error
        if len(content) != chunk.file_bytes:
            raise IntegrityError(
                f"chunk {chunk.key} has {len(content)} bytes, written were {chunk.file_bytes}"
            )
        nbytes = chunk.stop - chunk.start
        parts = measured(content[:nbytes], chunk.start, chunk.stop)
        check_trailer(chunk, parts, content[nbytes:])
        into[chunk.start : chunk.stop] = content[:nbytes]
        return parts

    chunks = [chunk for span in record.spans for chunk in span.chunks()]
    grains = folded(chain.from_iterable(for_all(executor, get, [chunks])))
    if digest_of_grains(grains, len(into)) != record.manifest.digest:
        raise IntegrityError("its bytes do not have the digest of its manifest")


def read_object_ranges(
    bucket: Bucket,
    folder: str,
    record: VersionRecord,
    ranges: Sequence[Range],
    into: memoryview,
    executor: Executor,
) -> int:
    """`plexrl.state.partial.read_grains` from objects below a prefix."""

    def read(chunk: ChunkSpan, buffer: memoryview, offset: int) -> int:
        try:
            found = bucket.get_range(f"{folder}/{chunk.key}", offset, offset + len(buffer))
        except FileNotFoundError as error:
            raise IntegrityError(f"chunk {chunk.key} is missing") from error
        buffer[: len(found)] = found
        return len(found)

    return read_grains(record, ranges, into, executor, read)
