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
    """Under leases, swaps included, of each group of a gang."""
    swap_s: float = 0.0
    waited_s: float = 0.0
    """Ready, and waiting for its group."""
    staleness: int | None = None
    """Versions between the rollout and the train function of its last iteration."""
    sampled: dict[int, int] = field(default_factory=dict)
    """Iteration → version of its rollout, from the one that trains on; some may sample ahead."""
    passes: Counter[str] = field(default_factory=Counter)
    """Op → iterations it had leases in, replays counted again."""
    iterations: dict[str, int] = field(default_factory=dict)
    """Op → iteration of its last lease."""
    last: tuple[str, float] | None = None
    """Id and start of the last lease; the same again is that of another group of a gang."""

    @property
    def num_iterations(self) -> int:
        """Iterations it had leases in, replays counted again."""
        return max(self.passes.values(), default=0)

    def add(self, lease: LeaseRecord) -> None:
        """Take a finished lease."""
        self.held_s += lease.held_s
        if self.last == (lease.id, lease.started_s):
            return
        self.last = lease.id, lease.started_s
        self.swap_s += lease.swap_s
        self.waited_s += max(0.0, lease.started_s - lease.ready_s)
        if self.iterations.get(lease.op) != lease.iteration:
            self.iterations[lease.op] = lease.iteration
            self.passes[lease.op] += 1
        function = function_of(lease.op)
        if function == "rollout":
            self.sampled[lease.iteration] = lease.version
        elif function == "train" and lease.iteration in self.sampled:
            self.staleness = max(0, lease.version - self.sampled[lease.iteration])
            self.sampled = {i: v for i, v in self.sampled.items() if i >= lease.iteration}

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
