"""The durable tier: versions of states as Zarr groups in a local folder.

``<root>/<job>/<model>/v<version>/`` is a Zarr 3 group with one 1-D uint8 array per role.
Its root document is renamed into place last: without it the version does not exist, with
it the version never changes. What is read is verified first; damage is moved aside.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from threading import Lock
from types import TracebackType

from plexrl.core.states import Manifest, StateRef
from plexrl.errors import IntegrityError, StateError
from plexrl.state import files
from plexrl.state.draining import Partner
from plexrl.state.folder import QUARANTINE, TRASH, StoreFolder
from plexrl.state.geometry import CHUNK_BYTES, ArraySpan, array_spans
from plexrl.state.partial import Range
from plexrl.state.record import VersionRecord
from plexrl.state.spares import Spares
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
from plexrl.state.version_files import (
    ROOT_DOCUMENT,
    read_bytes,
    read_ranges,
    read_record,
    write_version,
)


def _clear_half(folder: Path, spare: Path | None) -> None:
    """Free the room of a failed write, unless the failure came after the commit."""
    # The write's own error is the one to report; the next claim clears the rest.
    with suppress(OSError):
        if not (folder / ROOT_DOCUMENT).exists():
            files.remove_tree(folder)
        if spare is not None:
            files.remove_tree(spare)


def _spans(record: Callable[[], VersionRecord]) -> tuple[ArraySpan, ...]:
    """Arrays of a version; none if they cannot be told."""
    try:
        return record().spans
    except StateError:
        return ()


class ZarrStore:
    """Versions in a folder; safe to use from several threads.

    Parameters
    ----------
    root
        The folder; created if it does not exist.
    durable
        Whether `write` returns only when the bytes are on the disk (fsync).
    read_only
        Claim nothing, change nothing; damage is reported but not moved aside.
    shared
        Claim single jobs instead of the whole store: several processes write into it, each
        job is written by one at a time.
    chunk_bytes
        Upper size of a chunk object.

    Raises
    ------
    StoreError
        The folder is foreign, newer, claimed by another process, or the disk refuses.
    """

    def __init__(
        self,
        root: str | Path,
        *,
        durable: bool = True,
        read_only: bool = False,
        shared: bool = False,
        chunk_bytes: int = CHUNK_BYTES,
    ):
        self._root = Path(root).absolute()
        self._durable = durable
        self._chunk_bytes = chunk_bytes
        self._folder = StoreFolder(self._root, read_only=read_only, shared=shared, durable=durable)
        self._partner = Partner("plexrl-store")
        self._changes = Lock()
        self._spares = Spares()
        self.num_damaged = 0
        """Versions found damaged so far."""

    def __enter__(self) -> ZarrStore:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def root(self) -> Path:
        """The folder."""
        return self._root

    def close(self) -> None:
        """End the claim and the threads."""
        self._partner.close()
        with suppress(OSError):
            # What cannot be removed is swept by the next one who claims the job.
            self._spares.drop()
        self._folder.release()

    def write(self, manifest: Manifest, view: memoryview) -> int:
        """Commit a version: on return it is visible, and on the disk if the store is durable.

        A version that exists with the same digest is left as it is.

        Parameters
        ----------
        manifest
            Committed with the bytes; its digest is checked against them.
        view
            The bytes, shape ``(layout.nbytes,)``; they must not change meanwhile.

        Returns
        -------
        int
            Bytes written; 0 if it existed.

        Raises
        ------
        StoreError
            The disk refuses, or the version exists with other bytes.
        IntegrityError
            The bytes do not have the manifest's digest.
        """
        ref = manifest.ref
        check_buffer(manifest, view)
        spans = array_spans(manifest.layout, self._chunk_bytes)
        folder = self._folder.version_folder(ref)
        with self._changes, files.disk_errors(f"write {ref} to", folder):
            self._folder.check_there()
            self._folder.claim(ref.job)
            if self.contains(ref):
                check_same(self, manifest)
                written = 0
                if self._durable:
                    files.sync_folder(folder)
            else:
                files.make_folder(folder.parent, durable=self._durable)
                files.remove_tree(folder)
                spare = self._spares.take(ref, spans)
                try:
                    written = write_version(
                        folder,
                        manifest,
                        view,
                        spans,
                        self._partner,
                        durable=self._durable,
                        spare=spare,
                    )
                except (OSError, StateError):
                    _clear_half(folder, spare)
                    raise
                if spare is not None:
                    self._spares.used(spare)
            if self._durable:
                files.sync_folder(folder.parent)
            return written

    def contains(self, ref: StateRef) -> bool:
        """Whether the version is committed here."""
        return (self._folder.version_folder(ref) / ROOT_DOCUMENT).exists()

    @contextmanager
    def _opened(self, ref: StateRef) -> Iterator[int]:
        """Descriptor of the version's folder, which nobody deletes while it is open."""
        path = self._folder.version_path(ref)
        with files.disk_errors(f"read {ref} from", path):
            try:
                fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
            except FileNotFoundError:
                raise self._missing(ref) from None
            try:
                fcntl.flock(fd, fcntl.LOCK_SH)
                yield fd
            finally:
                os.close(fd)

    def _missing(self, ref: StateRef) -> StateError:
        return missing(self, ref, is_quarantined=self._folder.is_quarantined(ref))

    def _record(self, ref: StateRef, folder_fd: int) -> VersionRecord:
        try:
            record = read_record(folder_fd)
        except FileNotFoundError:
            raise self._missing(ref) from None
        if record.manifest.ref != ref:
            raise IntegrityError(f"its manifest is that of {record.manifest.ref}")
        return record

    def read(self, ref: StateRef, into: memoryview) -> Manifest:
        """Read a version into a buffer and verify it; only then it may be used.

        Raises
        ------
        IntegrityError
            It is not as it was written. It is moved aside, so that `latest` gives the last
            good version; the buffer holds anything.
        StoreError
            There is no such version, or the disk refuses.
        """
        # The other thread wakes up while this one learns what there is to read.
        with self._partner.call() as call, self._opened(ref) as fd:
            try:
                record = self._record(ref, fd)
                check_buffer(record.manifest, into)
                read_bytes(fd, record, into, call)
            except IntegrityError as error:
                raise self._quarantine(ref, error) from error
            return record.manifest

    def read_ranges(self, ref: StateRef, ranges: Sequence[Range], into: memoryview) -> int:
        """Read byte ranges of a version one behind the other into a buffer, and verify them.

        Only the grains of 256 KiB that the ranges touch are read; `slices` has the ranges of
        rows, columns and shards of tensors.

        Returns
        -------
        int
            Bytes read from the disk.

        Raises
        ------
        IntegrityError
            A grain is not as it was written; the version is moved aside.
        StateError
            A range does not lie in the state, or the buffer has not their size.
        """
        with self._opened(ref) as fd:
            try:
                return read_ranges(fd, self._record(ref, fd), ranges, into, self._partner)
            except IntegrityError as error:
                raise self._quarantine(ref, error) from error

    def manifest(self, ref: StateRef) -> Manifest:
        """Manifest of a version; its bytes are not looked at.

        Raises
        ------
        IntegrityError
            The manifest is damaged; the version was moved aside.
        StoreError
            There is no such version, or the disk refuses.
        """
        with self._opened(ref) as fd:
            try:
                return self._record(ref, fd).manifest
            except IntegrityError as error:
                raise self._quarantine(ref, error) from error

    def _quarantine(self, ref: StateRef, damage: IntegrityError) -> IntegrityError:
        self.num_damaged += 1
        self._folder.check_there()
        folder = self._folder.version_folder(ref)
        if self._folder.read_only or not folder.exists():
            return IntegrityError(f"{ref} in {self._root}: {damage}; use an older version")
        target = self._folder.aside(ref, QUARANTINE)
        files.replace(folder, target)
        return IntegrityError(
            f"{ref} in {self._root}: {damage}; it was moved aside to {target.name}, "
            "use the last good version"
        )

    def versions(self, job: str, model: str) -> tuple[int, ...]:
        """Committed versions of a model, oldest first.

        Raises
        ------
        StoreAwayError
            The whole store is not there.
        """
        self._folder.check_there()
        return self._folder.versions(job, model)

    def latest(self, job: str, model: str) -> Manifest | None:
        """Manifest of the newest version whose manifest is good; None if there is none."""
        return newest_good(self, job, model)

    def jobs(self) -> tuple[str, ...]:
        """Names of jobs that have states here."""
        return self._folder.jobs()

    def models(self, job: str) -> tuple[str, ...]:
        """Names of models of a job that have states here."""
        return self._folder.models(job)

    def release_job(self, job: str) -> None:
        """Let another process write this job (only where the store is shared)."""
        with files.disk_errors(f"let go of {job} in", self._root):
            self._spares.drop(job)
        self._folder.unclaim(job)

    def delete(self, ref: StateRef) -> bool:
        """Delete a version unless somebody reads it right now; returns whether it is gone.

        The space of the last one deleted stays taken until the next version of the model is
        written into it, or the job is let go of or collected.

        Raises
        ------
        StoreError
            The disk refuses.
        """
        folder = self._folder.version_folder(ref)
        with self._changes, files.disk_errors(f"delete {ref} in", folder):
            self._folder.claim(ref.job)
            try:
                fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
            except FileNotFoundError:
                return True
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                spans = _spans(partial(self._record, ref, fd))
                trash = self._folder.aside(ref, TRASH)
                files.replace(folder, trash)
            except BlockingIOError:
                return False
            finally:
                os.close(fd)
            if spans:
                files.remove_file(trash / ROOT_DOCUMENT)
                if self._durable:
                    # Else the disk may have bytes of the next version in a folder of this one.
                    files.sync_folder(folder.parent)
                self._spares.put(ref, trash, spans)
            else:
                files.remove_tree(trash)
            return True

    def retain(self, job: str, model: str, keep: int) -> tuple[StateRef, ...]:
        """Delete all but the newest `keep` versions of a model, and those being read.

        Parameters
        ----------
        keep
            Versions to keep, at least 1: the newest is never deleted.

        Returns
        -------
        tuple
            The versions deleted.
        """
        return delete_old(self, job, model, keep)

    def collect(self, job: str, keep: int) -> Collected:
        """Delete what a job needs no more: old versions, damaged ones, remains of crashes.

        Versions being read right now stay. Those that are kept are read back: one that is
        damaged is moved aside and does not count.

        Parameters
        ----------
        keep
            Newest versions of each model to keep, at least 1.

        Raises
        ------
        StoreError
            Another process writes the job, or the disk refuses.
        """
        quarantined: list[Path] = []
        nbytes = 0
        with self._changes, files.disk_errors(f"collect {job} in", self._root):
            self._folder.claim(job)
            for model in self.models(job):
                quarantined += self._folder.quarantined(job, model)
            nbytes += sum(map(files.tree_bytes, quarantined))
            for path in quarantined:
                files.remove_tree(path)
        deleted: list[StateRef] = []
        damaged: list[StateRef] = []
        for model in self.models(job):
            sizes = {
                StateRef(job, model, version): files.tree_bytes(folder)
                for version in self.versions(job, model)
                if (folder := self._folder.version_folder(StateRef(job, model, version)))
            }
            damaged += find_good(self, job, model, keep)
            gone = self.retain(job, model, keep)
            nbytes += sum(sizes[ref] for ref in gone)
            deleted += gone
        with files.disk_errors(f"collect {job} in", self._root):
            self._spares.drop(job)
        names = tuple(path.name for path in quarantined)
        return Collected(tuple(deleted), names, nbytes, tuple(damaged))

    def check(self, ref: StateRef | None = None) -> tuple[Finding, ...]:
        """Read and verify one version or all; reports, and changes nothing."""
        return tuple(map(self._check_one, all_versions(self) if ref is None else [ref]))

    def _check_one(self, ref: StateRef) -> Finding:
        with self._partner.call() as call, self._opened(ref) as fd:
            return examine(
                ref,
                lambda: self._record(ref, fd),
                lambda record, view: read_bytes(fd, record, view, call),
            )
