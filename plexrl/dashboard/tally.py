"""Totals over the execution log, kept up to date lease by lease: what pages and metrics show."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from plexrl.dashboard.lanes import function_of
from solver.trace import LeaseRecord, Outcome

RECENT_LEASES = 600
"""Leases remembered per group for the timeline: minutes of short functions."""


@dataclass(slots=True, eq=False)
class JobTally:
    """Totals of one job; seconds."""

    held_s: float = 0.0
    """Under leases, swaps included."""
    swap_s: float = 0.0
    waited_s: float = 0.0
    """Ready, and waiting for its group."""
    num_leases: int = 0
    swaps: Counter[str] = field(default_factory=Counter)
    """Tier its state came from → leases."""
    staleness: int | None = None
    """Versions between the rollout and the train function of its last iteration."""
    num_iterations: int = 0
    """Iterations it had leases in, replays counted again."""
    iteration: int | None = None
    """The one its last lease belongs to."""
    sampled: tuple[int, int] | None = None
    """(iteration, version) of its last rollout."""

    def add(self, lease: LeaseRecord) -> None:
        """Take a finished lease."""
        waited_s = max(0.0, lease.started_s - lease.ready_s)
        self.held_s += lease.held_s
        self.swap_s += lease.swap_s
        self.waited_s += waited_s
        self.num_leases += 1
        self.swaps[lease.swap_source] += 1
        if lease.iteration != self.iteration:
            self.iteration = lease.iteration
            self.num_iterations += 1
        function = function_of(lease.op)
        if function == "rollout":
            self.sampled = (lease.iteration, lease.version)
        elif function == "train" and self.sampled and self.sampled[0] == lease.iteration:
            self.staleness = max(0, lease.version - self.sampled[1])

    def alone_s(self, iteration_s: float) -> float:
        """Estimated mean seconds of an iteration alone: the measured one without waits and swaps.

        Parameters
        ----------
        iteration_s
            Mean seconds of its iterations so far, shared.
        """
        lost_s = (self.waited_s + self.swap_s) / max(1, self.num_iterations)
        # Functions of one iteration that wait side by side may lose more than the iteration takes.
        return max(iteration_s - lost_s, 0.05 * iteration_s)


class Tally:
    """Totals over all leases handed in."""

    def __init__(self) -> None:
        self.num_leases = 0
        self.outcomes: Counter[Outcome] = Counter()
        self.jobs: defaultdict[str, JobTally] = defaultdict(JobTally)
        self._recent: defaultdict[str, deque[LeaseRecord]] = defaultdict(
            lambda: deque(maxlen=RECENT_LEASES)
        )

    def add(self, leases: Iterable[LeaseRecord]) -> None:
        """Take leases that finished since the last call."""
        for lease in leases:
            self.num_leases += 1
            self.outcomes[lease.outcome] += 1
            if lease.iteration >= 0:
                self.jobs[lease.job].add(lease)
            self._recent[lease.group].append(lease)

    def recent(self, group: str, since_s: float) -> list[LeaseRecord]:
        """Leases of a group that ended after a moment, oldest first."""
        found: list[LeaseRecord] = []
        for lease in reversed(self._recent.get(group, ())):
            if lease.ended_s < since_s:
                break
            found.append(lease)
        found.reverse()
        return found
