"""What was planned when, why, and what came of it."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from itertools import islice

from plexrl.planning.proposals import Proposal
from solver.dispatch.events import TICKS_PER_S, DispatchPlan
from solver.seatplan import rule_to_json

MAX_SOLVES = 512
"""Solves remembered: at the usual period more than an hour."""
MAX_PLANNED_JOBS = 16_384
"""Jobs in all solves remembered, together: with 512 jobs the newest 32 solves. They bound memory,
and the time the scheduler takes to tell all of it."""


@dataclass(slots=True, eq=False)
class Actual:
    """Iterations of one job under one plan."""

    num: int = 0
    total_s: float = 0.0

    def to_json(self) -> dict[str, object]:
        """The count and the mean as JSON types."""
        return {"iterations": self.num, "mean_s": self.total_s / self.num if self.num else None}


@dataclass(slots=True, eq=False)
class Solve:
    """One adopted proposal and the iterations that ended while it was in force."""

    proposal: Proposal
    adopted_s: float
    actual: dict[str, Actual] = field(default_factory=dict)

    def to_json(self) -> dict[str, object]:
        """The solve as JSON types."""
        proposal, plan = self.proposal, self.proposal.plan
        predicted: dict[str, float] = {}
        if plan is not None:
            cycles = {entry.group: entry.cycle_ticks / TICKS_PER_S for entry in plan.timelines}
            predicted = {job: cycles[group] for job, group in plan.placement.items()}
        # Jobs that share no cycle pass theirs at their own pace.
        predicted |= proposal.periods_s
        move = proposal.rearrangement
        jobs = sorted({*predicted, *self.actual})
        return {
            "number": proposal.request.number,
            "reason": proposal.request.reason,
            "status": proposal.status,
            "objective_s": proposal.objective_s,
            "bound_s": proposal.bound_s,
            "bound_class": proposal.bound_class,
            "seconds": proposal.seconds,
            "verified": proposal.is_verified,
            "note": proposal.note,
            "move": None if move is None else move.to_json(),
            "placement": {
                entry.name: list(entry.placement.groups) for entry in proposal.request.jobs
            },
            "requested_s": proposal.request.now_s,
            "adopted_s": self.adopted_s,
            "cycles": {
                job: {
                    "predicted_s": predicted.get(job),
                    "actual": self.actual.get(job, Actual()).to_json(),
                }
                for job in jobs
            },
        }


class Chronicle:
    """History of solves; memory is bounded."""

    def __init__(self) -> None:
        self.solves: deque[Solve] = deque()
        self.num_solves = 0
        self._num_jobs = 0

    def add(self, proposal: Proposal, now_s: float) -> None:
        """A proposal was adopted."""
        self.solves.append(Solve(proposal, now_s))
        self.num_solves += 1
        self._num_jobs += len(proposal.request.jobs)
        while len(self.solves) > 1 and (
            len(self.solves) > MAX_SOLVES or self._num_jobs > MAX_PLANNED_JOBS
        ):
            self._num_jobs -= len(self.solves.popleft().proposal.request.jobs)

    @property
    def last(self) -> Solve | None:
        """The solve in force."""
        return self.solves[-1] if self.solves else None

    def adopted(self) -> tuple[tuple[float, DispatchPlan], ...]:
        """When each plan came into force, on the cluster's clock, and what the arbiter took."""
        return tuple((solve.adopted_s, solve.proposal.dispatch) for solve in self.solves)

    def iteration_ended(self, job: str, seconds: float) -> None:
        """An iteration of a job ended under the plan in force."""
        if self.last is not None:
            actual = self.last.actual.setdefault(job, Actual())
            actual.num += 1
            actual.total_s += seconds

    def _in_force(self) -> dict[str, object] | None:
        """The solve in force, its plan, problem and what groups serve by; None before the first."""
        last = self.last
        if last is None:
            return None
        proposal = last.proposal
        return {
            **last.to_json(),
            "plan": None if proposal.plan is None else proposal.plan.to_json(),
            "problem": None if proposal.problem is None else proposal.problem.to_json(),
            "ordered": sorted(proposal.dispatch.orders),
            "rules": {g: rule_to_json(rule) for g, rule in proposal.dispatch.rules.items()},
        }

    def since(self, first: int, most: int) -> list[dict[str, object]]:
        """Solves from the given one on as JSON types, oldest first, without plans and problems.

        Parameters
        ----------
        first
            Counts all solves since the start; those dropped from memory are left out.
        most
            Only so many of the newest.
        """
        wanted = min(len(self.solves), most, max(0, self.num_solves - first))
        newest = list(islice(reversed(self.solves), wanted))
        return [solve.to_json() for solve in reversed(newest)]

    def to_json(self, newest: int | None = None) -> dict[str, object]:
        """The plan in force and the history as JSON types.

        Parameters
        ----------
        newest
            Only so many of the newest solves; None: all that are remembered.
        """
        return {
            "num_solves": self.num_solves,
            "in_force": self._in_force(),
            "history": self.since(0, len(self.solves) if newest is None else newest),
        }
