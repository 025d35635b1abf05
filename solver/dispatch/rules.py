"""Dispatch rules: plan order with backfill, and the simpler ones it is compared with."""

from __future__ import annotations

from dataclasses import dataclass

from solver.dispatch.views import Candidate, Choice, GroupView, Hold, Planned, Run


@dataclass(frozen=True, slots=True)
class PlanOrderWithBackfill:
    """Plan order, with others let in where they do not harm the planned op.

    The planned op runs if it is queued. Else another queued op runs if it would end before the
    planned op's expected arrival plus a tolerance, or if the planned op is overdue; else the
    group waits. The tolerance is `slack` × the planned duration, or what the planned job can be
    delayed per cycle without lengthening the cycle, whichever is more.
    """

    slack: float = 0.5
    """Tolerated delay of the planned op as a share of its duration."""
    overdue: float = 0.15
    """A planned op later than this share of its wait is not waited for."""

    def choose(self, view: GroupView) -> Choice:
        """Decide for one group whose queue is not empty."""
        if not view.upcoming:
            return Run(view.queue[0].id)
        planned = view.upcoming[0]
        if planned.id is not None:
            return Run(planned.id)
        for candidate in view.queue:
            if self._may_go_first(candidate, planned, view):
                return Run(candidate.id)
        overdue_at = planned.arrival + int(self.overdue * planned.wait_ticks)
        if view.now >= overdue_at:
            return Run(view.queue[0].id)
        return Hold(overdue_at, planned.job, planned.op)

    risk: float = 0.0
    idle: bool = True
    margin: float=0
    def _may_go_first(self, candidate: Candidate, planned: Planned, view: GroupView) -> bool:
        delay_ticks = view.free_at + candidate.duration_ticks - planned.arrival
        if delay_ticks <= self.slack * planned.duration_ticks:
            return True
        idle_ticks = planned.arrival + self.risk*planned.wait_ticks - view.free_at
        wait_ticks = idle_ticks + planned.duration_ticks
        harm = max(wait_ticks - candidate.float_ticks, (idle_ticks - view.spare_ticks) if self.idle else 0, 0)
        if candidate.float_ticks - planned.float_ticks < self.margin*wait_ticks:
            return True
        return delay_ticks - planned.float_ticks <= harm


@dataclass(frozen=True, slots=True)
class LargestLagFirst:
    """Grant the group to the job that waited longest, relative to its time alone."""

    def choose(self, view: GroupView) -> Choice:
        """Decide for one group whose queue is not empty."""
        return Run(max(view.queue, key=_lag).id)


@dataclass(frozen=True, slots=True)
class FirstReady:
    """Grant the group to the function that was ready first."""

    def choose(self, view: GroupView) -> Choice:
        """Decide for one group whose queue is not empty."""
        return Run(view.queue[0].id)


def _lag(candidate: Candidate) -> float:
    return candidate.waited_ticks / max(candidate.alone_ticks, 1)
