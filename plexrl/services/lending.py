"""The lender's side of a copy: keeps a version in host memory while another group reads it."""

from __future__ import annotations

import itertools
import os
from pathlib import Path
from threading import Lock

from plexrl.clock import Clock
from plexrl.core.layout import ALIGNMENT_BYTES, ROLE_WEIGHTS
from plexrl.core.states import Manifest, StateRef
from plexrl.errors import ServiceError
from plexrl.services.peers import Loan, SharedMemory
from plexrl.state.checksums import digest_of
from plexrl.state.host import Fetched
from plexrl.state.manager import StateManager

LOAN_TIMEOUT_S = 120.0
"""Seconds after which a loan nobody gave back ends: its borrower is dead. Longer than any copy."""

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class Lending:
    """Loans of one service.

    Parameters
    ----------
    states
        What is lent.
    """

    def __init__(self, states: StateManager, clock: Clock) -> None:
        self._states = states
        self._clock = clock
        self._lock = Lock()
        self._numbers = itertools.count()
        self._loans: dict[int, tuple[Fetched, float]] = {}
        self._digests: dict[StateRef, tuple[str, str]] = {}
        """Version → (digest of the state, digest of its weights), the newest of each model."""
        self._boot_id = _BOOT_ID.read_text().strip() if _BOOT_ID.exists() else ""

    def lend(self, ref: StateRef) -> Loan:
        """Keep a version in host memory.

        Raises
        ------
        StateError
            It is in no tier, or there is no room for it.
        """
        self._end_old_loans()
        fetched = self._states.fetch(ref)
        nbytes = weights_bytes(fetched.manifest)
        digest = self._digest(fetched, nbytes)
        with self._lock:
            number = next(self._numbers)
            self._loans[number] = (fetched, self._clock())
        return Loan(number, fetched.manifest, nbytes, digest, self._memory(fetched))

    def read(self, number: int, start: int, nbytes: int) -> bytes:
        """Bytes of a loan.

        Raises
        ------
        ServiceError
            There is no such loan, or no more.
        """
        with self._lock:
            loan = self._loans.get(number)
        if loan is None:
            raise ServiceError(f"loan {number} is over; ask for the version again")
        return bytes(loan[0].arena.view[start : start + nbytes])

    def give_back(self, number: int) -> None:
        """End a loan; one that is over already is none."""
        with self._lock:
            loan = self._loans.pop(number, None)
        if loan is not None:
            self._states.release(loan[0].manifest.ref)

    def forget(self, job: str) -> None:
        """End the loans of a job of which nothing runs any more: nobody needs what is lent."""
        with self._lock:
            loans = list(self._loans.items())
        for number, (fetched, _) in loans:
            if fetched.manifest.ref.job == job:
                self.give_back(number)
        self._digests = {ref: both for ref, both in self._digests.items() if ref.job != job}

    def _digest(self, fetched: Fetched, nbytes: int) -> str:
        manifest = fetched.manifest
        known = self._digests.get(manifest.ref)
        if known is None or known[0] != manifest.digest:
            known = (manifest.digest, digest_of(fetched.arena.view[:nbytes]))
            ref = manifest.ref
            self._digests = {
                other: digests
                for other, digests in self._digests.items()
                if (other.job, other.model) != (ref.job, ref.model)
            } | {ref: known}
        return known[1]

    def _memory(self, fetched: Fetched) -> SharedMemory | None:
        if not self._boot_id:
            return None
        status = os.fstat(fetched.arena.fd)
        return SharedMemory(
            self._boot_id, os.getpid(), fetched.arena.fd, status.st_dev, status.st_ino
        )

    def _end_old_loans(self) -> None:
        oldest_s = self._clock() - LOAN_TIMEOUT_S
        with self._lock:
            old = [number for number, (_, since_s) in self._loans.items() if since_s < oldest_s]
        for number in old:
            self.give_back(number)


def weights_bytes(manifest: Manifest) -> int:
    """Length of the weights at the start of a state."""
    end = max(slot.offset + slot.nbytes for slot in manifest.layout.role(ROLE_WEIGHTS))
    return -(-end // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
