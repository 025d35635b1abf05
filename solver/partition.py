"""The cheapest choice among few sets that serves every job once: an exact search by depth first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

MOST_SEEN = 4_000_000
"""Sets looked at at most, a few tenths of a second: what was found by then is taken."""
_ROUNDING = 1e-9


def best_partition(
    num_jobs: int, sets: Sequence[Sequence[int]], excess: Sequence[float], most: float
) -> list[int] | None:
    """Indices of the sets of the cheapest choice; None if none is below a limit.

    Parameters
    ----------
    num_jobs
        Jobs from 0 on, each in exactly one set of a choice.
    sets
        The sets.
    excess
        By how much each set costs more than the prices of its jobs, at least 0: as little as at
        the optimum of the linear master, few choices have to be looked at.
    most
        Sum of the excess that a choice has to be below.
    """
    order = sorted((n for n in range(len(sets)) if excess[n] < most), key=lambda n: excess[n])
    search = _Search([[] for _ in range(num_jobs)], most)
    for n in order:
        bits = sum(1 << job for job in sets[n])
        for job in sets[n]:
            search.serving[job].append((max(excess[n], 0.0), bits, n))
    search.descend((1 << num_jobs) - 1, 0.0, ())
    return None if search.best is None else list(search.best)


@dataclass(slots=True)
class _Search:
    serving: list[list[tuple[float, int, int]]]
    """Per job the sets that serve it, cheapest first: excess, jobs as bits, index."""
    most: float
    best: tuple[int, ...] | None = None
    num_seen: int = field(default=0)

    def descend(self, left: int, spent: float, taken: tuple[int, ...]) -> None:
        """Serve the jobs that are left, first the one that fewest sets can serve."""
        if not left:
            self.best, self.most = taken, spent
            return
        rows = (self._open(job, left) for job in range(left.bit_length()) if left >> job & 1)
        for excess, bits, index in min(rows, key=len):
            if spent + excess >= self.most - _ROUNDING or self.num_seen >= MOST_SEEN:
                return
            self.descend(left & ~bits, spent + excess, (*taken, index))

    def _open(self, job: int, left: int) -> list[tuple[float, int, int]]:
        self.num_seen += len(self.serving[job])
        return [entry for entry in self.serving[job] if not entry[1] & ~left]
