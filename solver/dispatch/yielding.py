"""When a function that can stop and go on gives its group to another one: pure, in ticks."""

from __future__ import annotations

import math
from dataclasses import dataclass

from solver.dispatch.lifecycle import Entry
from solver.errors import ProblemError

TAIL_SHARE = 0.5
"""What a function that is past its expected length may still take, as a share of what it has
taken: lengths of rollouts have heavy tails, for which that share is constant."""


@dataclass(frozen=True, slots=True)
class YieldRule:
    """Who yields to whom.

    A function yields when what it is still expected to take exceeds what the waiting one takes, by
    a factor: the wait that the swap saves one job then exceeds what it costs the other. The tail of
    a rollout is the common case: few samples are left and nobody knows how long they go on.

    The defaults are measured by simulation (docs/yielding.md).
    """

    gain: float = 2.0
    """The holder's expected rest must be this many times the waiting one's length and swaps."""
    patience: float = 0.0
    """Share of its expected length that a holder always gets before it yields."""
    quantum_ticks: int = 200
    """Least length of a lease before it is ended: far above what a swap of small states takes."""
    max_yields: int = 8
    """Times one function yields; 0 turns yielding off."""

    def __post_init__(self) -> None:
        if not (0 < self.gain < math.inf and 0 <= self.patience < math.inf):
            raise ProblemError(
                f"yield rule has gain={self.gain} and patience={self.patience}; give a positive, "
                "finite factor and a finite share of at least 0"
            )
        if min(self.quantum_ticks, self.max_yields) < 0:
            raise ProblemError(
                f"yield rule has quantum_ticks={self.quantum_ticks} and max_yields="
                f"{self.max_yields}; give whole numbers of at least 0"
            )

    def due(self, holder: Entry, waiting: Entry, now: int) -> int | None:
        """First tick, now or later, at which the holder should yield; None if it never should.

        Parameters
        ----------
        holder
            A function whose start was seen.
        waiting
            The one that would run next.
        now
            Ticks, as all times here.
        """
        ref = holder.ref
        if not ref.is_yieldable or holder.num_yields >= self.max_yields:
            return None
        if holder.started_at is None or waiting.ref.job == ref.job:
            return None
        return self.moment(
            ref.served_ticks + ref.duration_ticks,
            ref.served_ticks,
            waiting.ref.duration_ticks + ref.swap_ticks,
            started=holder.started_at,
            now=now,
        )

    def moment(self, expected: int, served: int, other: int, *, started: int, now: int) -> int:
        """First tick, now or later, at which a function has held its group long enough to yield.

        Parameters
        ----------
        expected
            Its expected length.
        served
            What it took in earlier leases.
        other
            What the waiting one is expected to take, with the swap back.
        started
            Tick its lease began.
        now
            Tick.
        """
        begun = started - served
        first = max(served + self.quantum_ticks, math.ceil(self.patience * expected))
        age = max(first, now - begun)
        needed = self.gain * other
        if rest_ticks(expected, age) >= needed:
            return begun + age
        return begun + max(age, math.ceil(needed / TAIL_SHARE))


def rest_ticks(expected: int, served: int) -> int:
    """What a function is still expected to take.

    Parameters
    ----------
    expected
        Its expected length before it began.
    served
        What it has taken so far.
    """
    return max(expected - served, math.ceil(TAIL_SHARE * served), 1)
