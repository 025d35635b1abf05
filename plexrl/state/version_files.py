"""Moves one version between arena and disk: chunk objects directly, each byte touched once."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from concurrent.futures import Executor
from functools import partial
from itertools import groupby
from pathlib import Path

from plexrl.core.states import Manifest
from plexrl.errors import IntegrityError
from plexrl.state import files
from plexrl.state.checksums import (
    GRAIN_BYTES,
    combine,
    combine_all,
    crc32c,
    digest_of_grains,
    pieces,
)
from plexrl.state.draining import for_all
from plexrl.state.geometry import CRC_BYTES, ArraySpan, ChunkSpan, zarr_documents
from plexrl.state.record import VersionRecord, record_from_document, record_to_document

ROOT_DOCUMENT = "zarr.json"

Piece = tuple[int, int, int]
"""``(start in the arena, nbytes, crc32c)`` of a byte range that crosses no grain."""


def _fold_grains(parts: Iterable[Piece]) -> tuple[int, ...]:
    by_grain = groupby(sorted(parts), key=lambda piece: piece[0] // GRAIN_BYTES)
    return tuple(combine_all((crc, nbytes) for _, nbytes, crc in group) for _, group in by_grain)


def _chunks(spans: Iterable[ArraySpan]) -> Iterator[ChunkSpan]:
    return (chunk for span in spans for chunk in span.chunks())


def _write_chunk(folder: Path, view: memoryview, durable: bool, chunk: ChunkSpan) -> list[Piece]:
    parts: list[Piece] = []
    total = 0
    fd = files.create(folder / chunk.key)
    try:
        for start, stop in pieces(chunk.start, chunk.stop):
            crc = crc32c(view[start:stop])
            files.write_all(fd, [view[start:stop]])
            parts.append((start, stop - start, crc))
            total = combine(total, crc, stop - start)
        padding = bytes(chunk.pad_bytes)
        trailer = crc32c(padding, total).to_bytes(CRC_BYTES, "little")
        files.write_all(fd, [padding, trailer])
        if durable:
            files.sync(fd)
    finally:
        os.close(fd)
    return parts


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
        (folder / span.name / "c").mkdir()
    write = partial(_write_chunk, folder, view, durable)
    grains = _fold_grains(for_all(executor, write, _chunks(spans)))
    found = digest_of_grains(grains, len(view))
    if found != manifest.digest:
        raise IntegrityError(
            f"{manifest.ref}: the arena has digest {found[:16]}…, its manifest says "
            f"{manifest.digest[:16]}…; it was changed after its digest was taken"
        )
    total = sum(chunk.file_bytes for chunk in _chunks(spans))
    documents = zarr_documents(spans)
    for span in spans:
        path = folder / span.name / ROOT_DOCUMENT
        content = documents[f"{span.name}/{ROOT_DOCUMENT}"].encode()
        total += files.write_file(path, content, durable=durable)
        if durable:
            files.sync_folder(folder / span.name / "c")
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


def _read_pieces(fd: int, chunk: ChunkSpan, view: memoryview) -> list[Piece]:
    parts: list[Piece] = []
    total = 0
    for start, stop in pieces(chunk.start, chunk.stop):
        files.read_at(fd, view[start:stop], start - chunk.start)
        crc = crc32c(view[start:stop])
        parts.append((start, stop - start, crc))
        total = combine(total, crc, stop - start)
    tail = memoryview(bytearray(chunk.pad_bytes + CRC_BYTES))
    files.read_at(fd, tail, chunk.stop - chunk.start)
    total = crc32c(tail[: chunk.pad_bytes], total)
    if total != int.from_bytes(tail[chunk.pad_bytes :], "little"):
        raise IntegrityError(f"chunk {chunk.key} does not match its checksum")
    return parts


def _read_chunk(folder_fd: int, view: memoryview, chunk: ChunkSpan) -> list[Piece]:
    try:
        fd = os.open(chunk.key, os.O_RDONLY, dir_fd=folder_fd)
    except FileNotFoundError as error:
        raise IntegrityError(f"chunk {chunk.key} is missing") from error
    try:
        held = os.fstat(fd).st_size
        if held != chunk.file_bytes:
            raise IntegrityError(
                f"chunk {chunk.key} has {held} bytes, written were {chunk.file_bytes}"
            )
        return _read_pieces(fd, chunk, view)
    finally:
        os.close(fd)


def read_bytes(folder_fd: int, record: VersionRecord, view: memoryview, executor: Executor) -> None:
    """Read the bytes of a version into a buffer, and verify every one of them.

    Raises
    ------
    IntegrityError
        A chunk is missing, has another size or other bytes than were written. The buffer
        then holds anything.
    """
    parts = for_all(executor, partial(_read_chunk, folder_fd, view), _chunks(record.spans))
    if digest_of_grains(_fold_grains(parts), len(view)) != record.manifest.digest:
        raise IntegrityError("its bytes do not have the digest of its manifest")
