"""Jobs that are at home on another group: copies of their weights, taken when they are needed.

A copy comes from the host memory of the job's home, through shared memory on one machine and over
the network else, and is checked before use. While the home is away, the store serves.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from dataflow.calls import AttachOptions, VersionToken
from dataflow.samples import SampleId
from plexrl.core.states import StateRef
from plexrl.errors import PlexRLError, ServiceError, StateError, StoreAwayError, VersionFenceError
from plexrl.services.peers import Loan, Peers, SharedMemory
from plexrl.state.checksums import verify
from plexrl.state.host import Fetched
from plexrl.state.manager import StateManager

READ_BYTES = 16 << 20
"""Bytes asked for at once over the network: large against the round trip, small against memory."""

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True, slots=True)
class Hosted:
    """A job that computes on a group."""

    job: str
    home: str
    """Address of the worker of its home; empty on the home itself, or while it has none."""
    is_home: bool
    models: Mapping[str, AttachOptions]
    """How its models are opened."""
    cancelled: frozenset[SampleId] = frozenset()
    """Its samples that somebody ended."""


class Guests:
    """What a service knows of the jobs it computes for.

    Parameters
    ----------
    group
        Name of the group, for messages.
    states
        Where copies are kept.
    peers
        Reaches other services.
    """

    def __init__(self, group: str, states: StateManager, peers: Peers) -> None:
        self._group = group
        self._states = states
        self._peers = peers
        self._jobs: dict[str, Hosted] = {}

    def host(self, hosted: Hosted) -> None:
        """Take a job, or news of it."""
        before = self._jobs.get(hosted.job)
        self._jobs[hosted.job] = hosted
        if hosted.is_home and before is not None and not before.is_home:
            # From now on its versions are made here.
            self._states.copies.drop(hosted.job)

    def forget(self, job: str) -> None:
        """A job ended."""
        self._jobs.pop(job, None)

    def get(self, job: str) -> Hosted | None:
        """A job that is at home on another group; None for those at home here."""
        hosted = self._jobs.get(job)
        return None if hosted is None or hosted.is_home else hosted

    @contextmanager
    def gang(self, hosted: Hosted, function_id: str) -> Iterator[None]:
        """Hold a job's home too while a function runs here that spans both.

        Raises
        ------
        ServiceError
            The home is away.
        LeaseError
            What runs there did not end in time.
        """
        if not hosted.home:
            raise ServiceError(f"the home of job {hosted.job!r} has no worker right now")
        self._peers.hold(hosted.home, function_id)
        try:
            yield
        finally:
            with suppress(ServiceError):
                self._peers.let_go(hosted.home, function_id)

    def copy(self, ref: StateRef) -> None:
        """Fetch a copy that will be needed soon; what goes wrong shows when it is needed."""
        hosted = self.get(ref.job)
        if hosted is None or not hosted.home or ref.model not in hosted.models:
            return
        with suppress(PlexRLError):
            found = self._states.copies.fetch_here(ref) or self._borrow(hosted, ref, None)
            self._states.release(found.manifest.ref)

    def bring(self, hosted: Hosted, token: VersionToken) -> Fetched:
        """Pin a version on host, copying it if it is not there; ends with `StateManager.release`.

        Raises
        ------
        ServiceError
            Neither the home nor the store has it.
        VersionFenceError
            The home has other bytes under this version.
        """
        ref = StateRef(token.job, token.model, token.version)
        here = self._states.copies.fetch_here(ref)
        if here is not None:
            if here.manifest.digest == token.digest:
                return here
            # Made by a run that was rolled back.
            self._states.copies.drop(token.job)
            self._states.release(ref)
        try:
            return self._borrow(hosted, ref, token.digest)
        except VersionFenceError:
            raise
        except PlexRLError as error:
            return self._from_store(ref, error)

    def _from_store(self, ref: StateRef, cause: PlexRLError) -> Fetched:
        try:
            return self._states.fetch(ref)
        except StoreAwayError:
            # The driver waits for the store.
            raise
        except StateError as error:
            if isinstance(cause, StoreAwayError):
                # Its home has it, but no room for it before the store takes others.
                raise cause from error
            raise ServiceError(
                f"group {self._group!r} gets no {ref}: from its home: {cause}; from the store: "
                f"{error}; the job goes back to its last stored version"
            ) from cause

    def _borrow(self, hosted: Hosted, ref: StateRef, digest: str | None) -> Fetched:
        """Copy a version from the job's home."""
        if not hosted.home:
            raise ServiceError(f"the home of job {hosted.job!r} has no worker right now")
        loan = self._peers.lend(hosted.home, ref)
        try:
            if digest is not None and loan.manifest.digest != digest:
                raise VersionFenceError(
                    f"{ref} has digest {loan.manifest.digest} at home, but the job speaks of "
                    f"{digest}; the driver goes back to what is committed"
                )

            def fill(view: memoryview) -> None:
                self._fill(hosted.home, loan, view)
                verify(view, loan.digest, f"copy of {ref} on group {self._group!r}")

            keep_versions = hosted.models[ref.model].num_versions
            return self._states.copies.receive(
                loan.manifest, loan.nbytes, fill, keep_versions=keep_versions
            )
        finally:
            with suppress(ServiceError):
                self._peers.give_back(hosted.home, loan.number)

    def _fill(self, address: str, loan: Loan, view: memoryview) -> None:
        if loan.memory is not None and copy_shared(loan.memory, view):
            return
        for start in range(0, loan.nbytes, READ_BYTES):
            stop = min(start + READ_BYTES, loan.nbytes)
            view[start:stop] = self._peers.read(address, loan.number, start, stop - start)


def copy_shared(memory: SharedMemory, view: memoryview) -> bool:
    """Fill a buffer from memory of another process; False where that is not to be had."""
    if not _BOOT_ID.exists() or _BOOT_ID.read_text().strip() != memory.boot_id:
        return False
    try:
        fd = os.open(f"/proc/{memory.pid}/fd/{memory.fd}", os.O_RDONLY)
    except OSError:
        # Another container, or another user.
        return False
    try:
        status = os.fstat(fd)
        # In another container the same numbers may name another file.
        if (status.st_dev, status.st_ino) != (memory.device, memory.inode):
            return False
        with (
            mmap.mmap(fd, len(view), prot=mmap.PROT_READ) as mapped,
            memoryview(mapped) as source,
        ):
            view[:] = source
        return True
    finally:
        os.close(fd)
