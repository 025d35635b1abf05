"""What services of one cluster ask of each other; the runtime carries it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from plexrl.core.states import Manifest, StateRef


@dataclass(frozen=True, slots=True)
class SharedMemory:
    """Where a process of the same machine finds the bytes of a loan."""

    boot_id: str
    """Of the machine since it was last started."""
    pid: int
    fd: int
    device: int
    """With `inode` it tells whether what is found there is what was lent."""
    inode: int


@dataclass(frozen=True, slots=True)
class Loan:
    """A version that stays in the lender's host memory until it is given back."""

    number: int
    """Of the lender."""
    manifest: Manifest
    nbytes: int
    """Length of the weights, which come first in a state."""
    digest: str
    """`plexrl.state.checksums.digest_of` these bytes."""
    memory: SharedMemory | None
    """None where the lender's system has no such thing."""


class Peers(Protocol):
    """Calls to the service behind an address; safe to use from several threads.

    Each method raises ServiceError where the other side is gone or does not answer in time, and
    whatever the other side raised.
    """

    def lend(self, address: str, ref: StateRef) -> Loan:
        """Have a version kept in host memory."""
        ...

    def read(self, address: str, number: int, start: int, nbytes: int) -> bytes:
        """Bytes of a loan."""
        ...

    def give_back(self, address: str, number: int) -> None:
        """End a loan."""
        ...

    def hold(self, address: str, holder: str) -> None:
        """Have nothing run there until `let_go`, or until `holder` runs here no more."""
        ...

    def let_go(self, address: str, holder: str) -> None:
        """End `hold`."""
        ...
