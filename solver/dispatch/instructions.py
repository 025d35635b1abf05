"""What shall be done, as the arbiter answers: frozen values."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Admit:
    """Grant the function the lease of its groups, or of the one picked for it.

    With `is_ahead` another function still runs there; this one starts when it ends.
    """

    id: str
    groups: tuple[str, ...]
    is_ahead: bool


@dataclass(frozen=True, slots=True)
class Prefetch:
    """Bring the job's state closer to the group: its function is expected next."""

    group: str
    job: str
    op: str


@dataclass(frozen=True, slots=True)
class WakeAt:
    """Send `events.Woke` at this tick: the rule waits for something planned until then."""

    tick: int


@dataclass(frozen=True, slots=True)
class Yield:
    """Let the function stop at its next chance and release its groups: another one goes first."""

    id: str
    groups: tuple[str, ...]


Instruction = Admit | Prefetch | WakeAt | Yield
