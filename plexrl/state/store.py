"""What a durable tier is, in a folder or at a URL, and what is the same in both."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from plexrl.core.states import Manifest, StateRef
from plexrl.errors import IntegrityError, StateError, StoreError
from plexrl.state.arena import Arena
from plexrl.state.partial import Range
from plexrl.state.record import VersionRecord


@dataclass(frozen=True, slots=True)
class Finding:
    """Outcome of checking one stored version."""

    ref: StateRef
    nbytes: int
    """Bytes of the state; 0 if the manifest cannot be read."""
    damage: str
    """What is wrong; empty if every byte is as written."""


@dataclass(frozen=True, slots=True)
class Collected:
    """What garbage collection removed of one job."""

    versions: tuple[StateRef, ...]
    """Versions older than those to keep."""
    quarantined: tuple[str, ...]
    """Names under which damaged versions had been moved aside."""
    nbytes: int
    """Bytes that these and remains of interrupted commits took."""
    moved_aside: tuple[StateRef, ...]
    """Versions found damaged when those to keep were read back."""


class Store(Protocol):
    """Committed versions that outlive every process; safe to use from several threads.

    `ZarrStore` is the one in a folder, `ObjectStore` the one at a URL; both pass one suite.
    What each method promises and raises is said at `plexrl.state.zarr_store.ZarrStore`.
    """

    num_damaged: int
    """Versions found damaged since it was opened."""

    @property
    def root(self) -> Path | str:
        """Where it lies, for messages."""
        ...

    def write(self, manifest: Manifest, view: memoryview) -> int:
        """Commit a version in one atomic step; returns bytes written."""
        ...

    def read(self, ref: StateRef, into: memoryview) -> Manifest:
        """Read a version into a buffer, verified."""
        ...

    def read_ranges(self, ref: StateRef, ranges: Sequence[Range], into: memoryview) -> int:
        """Read byte ranges of a version into a buffer, verified; returns bytes read."""
        ...

    def manifest(self, ref: StateRef) -> Manifest:
        """Manifest of a version."""
        ...

    def contains(self, ref: StateRef) -> bool:
        """Whether the version is committed."""
        ...

    def versions(self, job: str, model: str) -> tuple[int, ...]:
        """Committed versions of a model, oldest first."""
        ...

    def latest(self, job: str, model: str) -> Manifest | None:
        """Manifest of the newest good version."""
        ...

    def jobs(self) -> tuple[str, ...]:
        """Names of jobs that have states here."""
        ...

    def models(self, job: str) -> tuple[str, ...]:
        """Names of models of a job that have states here."""
        ...

    def delete(self, ref: StateRef) -> bool:
        """Delete a version unless it is needed right now; returns whether it is gone."""
        ...

    def retain(self, job: str, model: str, keep: int) -> tuple[StateRef, ...]:
        """Delete all but the newest versions; returns those deleted."""
        ...

    def collect(self, job: str, keep: int) -> Collected:
        """Delete what a job needs no more."""
        ...

    def check(self, ref: StateRef | None = None) -> tuple[Finding, ...]:
        """Read and verify one version or all; changes nothing."""
        ...

    def release_job(self, job: str) -> None:
        """Let another process write this job."""
        ...


def check_buffer(manifest: Manifest, view: memoryview) -> None:
    """Check that a buffer has the size of a state.

    Raises
    ------
    StateError
        It has not.
    """
    if len(view) != manifest.layout.nbytes:
        raise StateError(
            f"{manifest.ref} has {manifest.layout.nbytes} bytes by its layout, the buffer "
            f"{len(view)}; give a buffer of its layout"
        )


def check_same(store: Store, manifest: Manifest) -> None:
    """Check that a version that exists has the bytes that were to be written.

    Raises
    ------
    StoreError
        It has others.
    """
    held = store.manifest(manifest.ref)
    if held.digest != manifest.digest:
        raise StoreError(
            f"{manifest.ref} exists in {store.root} with other bytes (digest "
            f"{held.digest[:16]}…, not {manifest.digest[:16]}…); a committed version never "
            "changes: delete it first, or use another job name"
        )


def newest_good(store: Store, job: str, model: str) -> Manifest | None:
    """Manifest of the newest version whose manifest is good; None if there is none."""
    for version in reversed(store.versions(job, model)):
        try:
            return store.manifest(StateRef(job, model, version))
        except IntegrityError:
            # Moved aside with its reason; the older one serves.
            continue
    return None


def delete_old(store: Store, job: str, model: str, keep: int) -> tuple[StateRef, ...]:
    """Delete all but the newest `keep` versions of a model; returns those deleted.

    Raises
    ------
    StateError
        None would stay.
    """
    if keep < 1:
        raise StateError(f"retain {keep} versions of {job}/{model}; keep at least 1")
    old = [StateRef(job, model, version) for version in store.versions(job, model)[:-keep]]
    return tuple(ref for ref in old if store.delete(ref))


def find_good(store: Store, job: str, model: str, keep: int) -> tuple[StateRef, ...]:
    """Read versions back, newest first, until `keep` are good; damaged ones are moved aside.

    Otherwise the last good version could be deleted for newer ones that nobody can use.

    Returns
    -------
    tuple
        The damaged ones.
    """
    num_good = 0
    damaged: list[StateRef] = []
    for version in reversed(store.versions(job, model)):
        if num_good == keep:
            break
        ref = StateRef(job, model, version)
        try:
            arena = Arena(store.manifest(ref).layout.nbytes)
            try:
                store.read(ref, arena.view)
            finally:
                arena.close()
            num_good += 1
        except IntegrityError:
            damaged.append(ref)
    return tuple(damaged)


def all_versions(store: Store) -> tuple[StateRef, ...]:
    """Every committed version."""
    return tuple(
        StateRef(job, model, version)
        for job in store.jobs()
        for model in store.models(job)
        for version in store.versions(job, model)
    )


def examine(
    ref: StateRef,
    record: Callable[[], VersionRecord],
    read: Callable[[VersionRecord, memoryview], None],
) -> Finding:
    """Read a version into memory of its own, and say what is wrong with it."""
    nbytes = 0
    try:
        found = record()
        nbytes = found.manifest.layout.nbytes
        arena = Arena(nbytes)
        try:
            read(found, arena.view)
        finally:
            arena.close()
    except IntegrityError as error:
        return Finding(ref, nbytes, str(error))
    return Finding(ref, nbytes, "")


def missing(store: Store, ref: StateRef, *, is_quarantined: bool) -> StateError:
    """The error for a version that is not there: damaged, or never committed."""
    if is_quarantined:
        return IntegrityError(
            f"{ref} was damaged and moved aside in {store.root}; use the last good version"
        )
    held = store.versions(ref.job, ref.model)
    return StoreError(
        f"{ref} is not in the store {store.root}; it holds versions {list(held) or 'none'}"
    )
