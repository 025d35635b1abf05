"""The durable tier at a URL: the same Zarr groups as objects, without locks.

Every attempt at a commit writes its chunks below a name of its own, then creates the root
document on the condition that there is none: of two writers one wins, and neither touches
what the other wrote. Without root document a version does not exist.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from types import TracebackType
from urllib.parse import unquote

from plexrl.core.states import Manifest, StateRef
from plexrl.errors import IntegrityError, StateError, StoreError
from plexrl.state.buckets import Bucket
from plexrl.state.checksums import crc32c, digest_of_grains, grain_checksums
from plexrl.state.draining import NUM_THREADS, for_all
from plexrl.state.folder import QUARANTINE, VERSION_NAME, name_to_path
from plexrl.state.geometry import CHUNK_BYTES, CRC_BYTES, ChunkSpan, array_spans, zarr_documents
from plexrl.state.partial import Range, read_grains
from plexrl.state.record import VersionRecord, record_from_document, record_to_document
from plexrl.state.version_files import ROOT_DOCUMENT


class ObjectStore:
    """Versions at a URL; safe to use from several threads and processes.

    What each method promises and raises is said at `plexrl.state.zarr_store.ZarrStore`.
    A version deleted while it is read is reported as missing, never handed out in part.

    Parameters
    ----------
    url
        E.g. ``s3://bucket/prefix``.
    options
        See `plexrl.state.buckets.Bucket`.
    chunk_bytes
        Upper size of a chunk object.

    Raises
    ------
    StoreError
        obstore is not installed, or does not take the URL.
    """

    def __init__(
        self,
        url: str,
        *,
        options: Mapping[str, str] | None = None,
        chunk_bytes: int = CHUNK_BYTES,
    ):
        self._bucket = Bucket(url, options or {})
        self._chunk_bytes = chunk_bytes
        self._executor = ThreadPoolExecutor(NUM_THREADS - 1, "plexrl-store")

    def __enter__(self) -> ObjectStore:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def root(self) -> str:
        """The URL."""
        return self._bucket.url

    def close(self) -> None:
        """End the threads."""
        self._executor.shutdown()

    def write(self, manifest: Manifest, view: memoryview) -> int:
        """Commit a version; on return it is visible and as durable as the service is."""
        ref = manifest.ref
        if len(view) != manifest.layout.nbytes:
            raise StateError(
                f"{ref}: the buffer has {len(view)} bytes, its layout {manifest.layout.nbytes}"
            )
        if self.contains(ref):
            return self._keep_existing(manifest)
        grains = grain_checksums(view)
        if digest_of_grains(grains, len(view)) != manifest.digest:
            raise IntegrityError(
                f"{ref}: the bytes do not have the digest of its manifest; they were changed "
                "after it was taken"
            )
        attempt = f"w{uuid.uuid4().hex[:12]}"
        spans = tuple(
            replace(span, name=f"{attempt}/{span.name}")
            for span in array_spans(manifest.layout, self._chunk_bytes)
        )
        folder = _folder(ref)
        chunks = [chunk for span in spans for chunk in span.chunks()]
        written = sum(for_all(self._executor, partial(self._put_chunk, folder, view), [chunks]))
        for path, text in zarr_documents(spans).items():
            if path != ROOT_DOCUMENT:
                self._bucket.put(f"{folder}/{path}", text.encode())
        root = record_to_document(VersionRecord(manifest, spans, grains))
        try:
            self._bucket.put(f"{folder}/{ROOT_DOCUMENT}", root, is_new=True)
        except FileExistsError:
            self._bucket.delete(self._bucket.keys(f"{folder}/{attempt}/"))
            return self._keep_existing(manifest)
        return written + len(root)

    def _put_chunk(self, folder: str, view: memoryview, chunk: ChunkSpan) -> int:
        padding = bytes(chunk.pad_bytes)
        content = view[chunk.start : chunk.stop]
        checksum = crc32c(padding, crc32c(content)).to_bytes(CRC_BYTES, "little")
        self._bucket.put(f"{folder}/{chunk.key}", b"".join([content, padding, checksum]))
        return chunk.file_bytes

    def _keep_existing(self, manifest: Manifest) -> int:
        held = self.manifest(manifest.ref)
        if held.digest != manifest.digest:
            raise StoreError(
                f"{manifest.ref} exists in {self.root} with other bytes (digest "
                f"{held.digest[:16]}…, not {manifest.digest[:16]}…); a committed version never "
                "changes: delete it first, or use another job name"
            )
        return 0

    def contains(self, ref: StateRef) -> bool:
        """Whether the version is committed here."""
        return self._bucket.exists(f"{_folder(ref)}/{ROOT_DOCUMENT}")

    def _record(self, ref: StateRef) -> VersionRecord:
        try:
            document = self._bucket.get(f"{_folder(ref)}/{ROOT_DOCUMENT}")
        except FileNotFoundError:
            raise self._missing(ref) from None
        record = record_from_document(bytes(document))
        if record.manifest.ref != ref:
            raise IntegrityError(f"its manifest is that of {record.manifest.ref}")
        return record

    def _missing(self, ref: StateRef) -> StateError:
        if self._bucket.exists(_aside(ref)):
            return IntegrityError(
                f"{ref} was damaged and moved aside in {self.root}; use the last good version"
            )
        held = self.versions(ref.job, ref.model)
        return StoreError(
            f"{ref} is not in the store {self.root}; it holds versions {list(held) or 'none'}"
        )

    def manifest(self, ref: StateRef) -> Manifest:
        """Manifest of a version; its bytes are not looked at."""
        try:
            return self._record(ref).manifest
        except IntegrityError as error:
            raise self._quarantine(ref, error) from error

    def read(self, ref: StateRef, into: memoryview) -> Manifest:
        """Read a version into a buffer and verify it; only then it may be used."""
        try:
            record = self._record(ref)
            if len(into) != record.manifest.layout.nbytes:
                raise StateError(
                    f"{ref} has {record.manifest.layout.nbytes} bytes, the buffer {len(into)}; "
                    "give a buffer of its layout"
                )
            chunks = [chunk for span in record.spans for chunk in span.chunks()]
            for_all(self._executor, partial(self._get_chunk, _folder(ref), into), [chunks])
            if digest_of_grains(grain_checksums(into), len(into)) != record.manifest.digest:
                raise IntegrityError("its bytes do not have the digest of its manifest")
        except IntegrityError as error:
            raise self._quarantine(ref, error) from error
        return record.manifest

    def _get_chunk(self, folder: str, into: memoryview, chunk: ChunkSpan) -> None:
        try:
            content = self._bucket.get(f"{folder}/{chunk.key}")
        except FileNotFoundError as error:
            raise IntegrityError(f"chunk {chunk.key} is missing") from error
        if len(content) != chunk.file_bytes:
            raise IntegrityError(
                f"chunk {chunk.key} has {len(content)} bytes, written were {chunk.file_bytes}"
            )
        into[chunk.start : chunk.stop] = content[: chunk.stop - chunk.start]

    def read_ranges(self, ref: StateRef, ranges: Sequence[Range], into: memoryview) -> int:
        """Read byte ranges of a version one behind the other into a buffer, and verify them."""
        folder = _folder(ref)

        def read(chunk: ChunkSpan, buffer: memoryview, offset: int) -> int:
            try:
                found = self._bucket.get_range(
                    f"{folder}/{chunk.key}", offset, offset + len(buffer)
                )
            except FileNotFoundError as error:
                raise IntegrityError(f"chunk {chunk.key} is missing") from error
            buffer[: len(found)] = found
            return len(found)

        try:
            return read_grains(self._record(ref), ranges, into, self._executor, read)
        except IntegrityError as error:
            raise self._quarantine(ref, error) from error

    def _quarantine(self, ref: StateRef, damage: IntegrityError) -> StateError:
        key = f"{_folder(ref)}/{ROOT_DOCUMENT}"
        try:
            document = bytes(self._bucket.get(key))
        except FileNotFoundError:
            return self._missing(ref)
        self._bucket.put(_aside(ref), document)
        self._bucket.delete([key])
        return IntegrityError(
            f"{ref} in {self.root}: {damage}; it was moved aside to {_aside(ref)}, use the last "
            "good version"
        )

    def versions(self, job: str, model: str) -> tuple[int, ...]:
        """Committed versions of a model, oldest first."""
        prefix = f"{name_to_path(job)}/{name_to_path(model)}/"
        found = []
        for key in self._bucket.keys(prefix):
            folder, _, name = key.removeprefix(prefix).partition("/")
            match = VERSION_NAME.fullmatch(folder)
            if match and name == ROOT_DOCUMENT:
                found.append(int(match[1]))
        return tuple(sorted(found))

    def latest(self, job: str, model: str) -> Manifest | None:
        """Manifest of the newest version whose manifest is good; None if there is none."""
        for version in reversed(self.versions(job, model)):
            try:
                return self.manifest(StateRef(job, model, version))
            except IntegrityError:
                # Moved aside; the older one serves.
                continue
        return None

    def _names(self, prefix: str) -> tuple[str, ...]:
        keys = (key.removeprefix(prefix) for key in self._bucket.keys(prefix))
        return tuple(sorted({unquote(key.partition("/")[0]) for key in keys if "/" in key}))

    def jobs(self) -> tuple[str, ...]:
        """Names of jobs that have states here."""
        return self._names("")

    def models(self, job: str) -> tuple[str, ...]:
        """Names of models of a job that have states here."""
        return self._names(f"{name_to_path(job)}/")

    def release_job(self, job: str) -> None:
        """Nothing is claimed: commits are conditional."""

    def delete(self, ref: StateRef) -> bool:
        """Delete a version; the root document goes first."""
        folder = _folder(ref)
        self._bucket.delete([f"{folder}/{ROOT_DOCUMENT}"])
        self._bucket.delete(self._bucket.keys(f"{folder}/"))
        return True

    def retain(self, job: str, model: str, keep: int) -> tuple[StateRef, ...]:
        """Delete all but the newest `keep` versions of a model."""
        if keep < 1:
            raise StateError(f"retain {keep} versions of {job}/{model}; keep at least 1")
        old = [StateRef(job, model, version) for version in self.versions(job, model)[:-keep]]
        return tuple(ref for ref in old if self.delete(ref))


def _folder(ref: StateRef) -> str:
    return f"{name_to_path(ref.job)}/{name_to_path(ref.model)}/v{ref.version:08d}"


def _aside(ref: StateRef) -> str:
    head, _, name = _folder(ref).rpartition("/")
    return f"{head}/{QUARANTINE}{name}/{ROOT_DOCUMENT}"
