"""What the arbiter knows about a job: where it stands, and when its next op should come."""

from __future__ import annotations

from dataclasses import dataclass, field

from solver.dispatch.lifecycle import Entry
from solver.dispatch.orders import PlanIndex


@dataclass(slots=True, eq=False)
class Progress:
    """One job as seen through its functions."""

    first_ready_at: int
    """Ticks."""
    waited_ticks: int = 0
    """Ticks its functions waited for groups, those that still wait left out."""
    alive: dict[str, Entry] = field(default_factory=dict)
    """Functions that wait or hold a group."""
    last_op: str | None = None
    last_ended_at: int = 0
    """Ticks."""
    successors: dict[str, str] = field(default_factory=dict)
    """Op → op that followed it last."""

    def begin(self, entry: Entry) -> None:
        """A function became ready."""
        if self.last_op is not None and not self.alive:
            self.successors[self.last_op] = entry.ref.op
        self.alive[entry.ref.id] = entry

    def note_end(self, op: str, now: int) -> None:
        """A function released its groups."""
        self.last_op = op
        self.last_ended_at = now

    def next_op(self, op: str, plan: PlanIndex, job: str) -> str | None:
        """Op expected after `op`: as seen last, else as planned."""
        return self.successors.get(op) or plan.next_op(job, op)
