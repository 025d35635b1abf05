"""The durable tier at a URL: the same Zarr groups as objects, without locks.

Every attempt at a commit writes its chunks below a name of its own, then creates the root
document on the condition that there is none: of two writers one wins, and neither touches
what the other wrote. Without root document a version does not exist.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from types import TracebackType
from urllib.parse import unquote

from plexrl.core.states import Manifest, StateRef
from plexrl.errors import IntegrityError, StateError
from plexrl.state.buckets import Bucket
from plexrl.state.claims import Claims
from plexrl.state.draining import Partner
from plexrl.state.folder import QUARANTINE, VERSION_NAME, name_to_path
from plexrl.state.geometry import CHUNK_BYTES
from plexrl.state.partial import Range
from plexrl.state.record import VersionRecord, record_from_document
from plexrl.state.store import (
    Collected,
    Finding,
    all_versions,
    check_buffer,
    check_same,
    delete_old,
    examine,
    find_good,
    missing,
    newest_good,
)
from plexrl.state.version_files import ROOT_DOCUMENT
from plexrl.state.version_objects import read_object_ranges, read_objects, write_objects


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
    read_only
        Claim nothing, change nothing; damage is reported but not moved aside.
    holder
        See `plexrl.state.claims.Claims`.
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
        read_only: bool = False,
        holder: str | None = None,
        chunk_bytes: int = CHUNK_BYTES,
    ):
        self._bucket = Bucket(url, options or {})
        self._read_only = read_only
        self._claims = Claims(self._bucket, holder, read_only=read_only)
        self._chunk_bytes = chunk_bytes
        self._partner = Partner("plexrl-store")
        self.num_damaged = 0
        """Versions found damaged so far."""

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
        """End the claims and the threads."""
        self._partner.close()
        self._claims.release_all()

    def write(self, manifest: Manifest, view: memoryview) -> int:
        """Commit a version; on return it is visible and as durable as the service is."""
        ref = manifest.ref
        check_buffer(manifest, view)
        self._claims.claim(ref.job)
        if self.contains(ref):
            check_same(self, manifest)
            return 0
        try:
            return write_objects(
                self._bucket, _folder(ref), manifest, view, self._chunk_bytes, self._partner
            )
        except FileExistsError:
            check_same(self, manifest)
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
        return missing(self, ref, is_quarantined=self._bucket.exists(_aside(ref)))

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
            check_buffer(record.manifest, into)
            self._fetch(record, into)
        except IntegrityError as error:
            raise self._quarantine(ref, error) from error
        return record.manifest

    def _fetch(self, record: VersionRecord, into: memoryview) -> None:
        """Read and verify the bytes of a version."""
        folder = _folder(record.manifest.ref)
        read_objects(self._bucket, folder, record, into, self._partner)

    def read_ranges(self, ref: StateRef, ranges: Sequence[Range], into: memoryview) -> int:
        """Read byte ranges of a version one behind the other into a buffer, and verify them."""
        try:
            record = self._record(ref)
            return read_object_ranges(
                self._bucket, _folder(ref), record, ranges, into, self._partner
            )
        except IntegrityError as error:
            raise self._quarantine(ref, error) from error

    def _quarantine(self, ref: StateRef, damage: IntegrityError) -> StateError:
        self.num_damaged += 1
        if self._read_only:
            return IntegrityError(f"{ref} in {self.root}: {damage}; use an older version")
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
        return newest_good(self, job, model)

    def jobs(self) -> tuple[str, ...]:
        """Names of jobs that have states here."""
        return _names(self._bucket.folders(""))

    def models(self, job: str) -> tuple[str, ...]:
        """Names of models of a job that have states here."""
        return _names(self._bucket.folders(f"{name_to_path(job)}/"))

    def release_job(self, job: str) -> None:
        """Let another cluster write this job, without waiting until the claim runs out."""
        self._claims.release(job)

    def delete(self, ref: StateRef) -> bool:
        """Delete a version; the root document goes first. A reader is told that it is gone."""
        self._claims.claim(ref.job)
        folder = _folder(ref)
        self._bucket.delete([f"{folder}/{ROOT_DOCUMENT}"])
        self._bucket.delete(self._bucket.keys(f"{folder}/"))
        return True

    def retain(self, job: str, model: str, keep: int) -> tuple[StateRef, ...]:
        """Delete all but the newest `keep` versions of a model."""
        return delete_old(self, job, model, keep)

    def collect(self, job: str, keep: int) -> Collected:
        """Delete what a job needs no more: old versions, damaged ones, remains of crashes."""
        self._claims.claim(job)
        deleted: list[StateRef] = []
        damaged: list[StateRef] = []
        quarantined: list[str] = []
        nbytes = 0
        for model in self.models(job):
            prefix = f"{name_to_path(job)}/{name_to_path(model)}/"
            before = self._bucket.sizes(prefix)
            damaged += find_good(self, job, model, keep)
            deleted += self.retain(job, model, keep)
            needed = self._needed(job, model)
            self._bucket.delete([key for key in before if not key.startswith(needed)])
            after = self._bucket.sizes(prefix)
            nbytes += sum(before.values()) - sum(after.values())
            asides = (key.removeprefix(prefix) for key in before.keys() - after.keys())
            quarantined += sorted(n.partition("/")[0] for n in asides if n.startswith(QUARANTINE))
        return Collected(tuple(deleted), tuple(quarantined), nbytes, tuple(damaged))

    def _needed(self, job: str, model: str) -> tuple[str, ...]:
        """Prefixes of the objects of all committed versions of a model."""
        prefixes: list[str] = []
        for version in self.versions(job, model):
            ref = StateRef(job, model, version)
            prefixes.append(f"{_folder(ref)}/{ROOT_DOCUMENT}")
            try:
                spans = self._record(ref).spans
            except IntegrityError:
                # Which chunks are its own is not known: `check` tells, and a read moves it aside.
                prefixes.append(f"{_folder(ref)}/")
                continue
            prefixes += [f"{_folder(ref)}/{span.name.partition('/')[0]}/" for span in spans]
        return tuple(prefixes)

    def check(self, ref: StateRef | None = None) -> tuple[Finding, ...]:
        """Read and verify one version or all; reports, and changes nothing."""
        return tuple(
            examine(each, partial(self._record, each), self._fetch)
            for each in (all_versions(self) if ref is None else [ref])
        )


def _names(folders: list[str]) -> tuple[str, ...]:
    return tuple(sorted(unquote(name) for name in folders if not name.startswith(".")))


def _folder(ref: StateRef) -> str:
    return f"{name_to_path(ref.job)}/{name_to_path(ref.model)}/v{ref.version:08d}"


def _aside(ref: StateRef) -> str:
    head, _, name = _folder(ref).rpartition("/")
    return f"{head}/{QUARANTINE}{name}/{ROOT_DOCUMENT}"
