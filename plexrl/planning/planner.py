"""When to plan again, with what, and what the plan in force says; the only bridge to the solver.

Single-threaded and pure, but for `solve`, which blocks and is run in a thread by the runtime::

    reason = planner.due(now_s)
    if reason is not None:
        proposal = solve(planner.request(reason, now_s))  # in a thread
        plan = planner.adopt(proposal, now_s)  # for the arbiter
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import solver
from plexrl.core.placement import Placement
from plexrl.core.status import PlanStatus
from plexrl.errors import JobError
from plexrl.planning.applying import check_names, read_plan
from plexrl.planning.arranging import LEAST_ITERATIONS
from plexrl.planning.chronicle import Chronicle
from plexrl.planning.config import PlanningConfig
from plexrl.planning.facts import GroupFacts, PlannedJob
from plexrl.planning.placing import Placed, check_room, has_room, place, replace_lost
from plexrl.planning.problems import EstimatedJob
from plexrl.planning.profiles import JobProfile
from plexrl.planning.proposals import (
    STATE_BYTES_S,
    PlanRequest,
    Proposal,
    busy_shares,
    solve,
    without,
)
from solver.dispatch.events import DispatchPlan
from solver.seatplan import SeatPlan
from solver.trace import LeaseRecord

UNKNOWN_S = 1.0
"""Expected length of a lease nothing is known of: of the order of a small model's, and only used
until the op was measured once."""
LEAST_DRIFT_S = 0.02
"""Absolute change that counts as a drift at least: jitter of a busy machine is no drift."""


class Planner:
    """Profiles, placement and plan of one cluster.

    Parameters
    ----------
    config
        How often and how hard to plan.

    Attributes
    ----------
    chronicle : Chronicle
        What was planned when.
    """

    def __init__(self, config: PlanningConfig) -> None:
        self._config = config
        self._jobs: dict[str, PlannedJob] = {}
        self._profiles: dict[str, JobProfile] = {}
        self._groups: dict[str, GroupFacts] = {}
        self._closed: set[str] = set()
        """Groups that take no job."""
        self._placement: dict[str, Placement] = {}
        self._left: dict[str, Placement] = {}
        """Job that is off its groups → where it was."""
        self._wishes: dict[str, tuple[Placement, bool]] = {}
        """Job → where it shall go when it is placed again, and whether it waits for room there."""
        self._moved_at: dict[str, int] = {}
        """Job → iterations it had been seen for when it was last moved."""
        self.num_moves = 0
        """Times a job was moved because a plan said so."""
        self._warm: dict[str, set[tuple[bool, str]]] = {}
        """Group → engines that ran there: whether for a job at home there, and which."""
        self._triggers: dict[str, str] = {}
        """Kind of event → reason to plan, as came up since the last request, in order."""
        self._num_requests = 0
        self._requested_s = 0.0
        self._planned_s: dict[tuple[str, str], float] = {}
        """(job, op) → lease length without swap behind the last request."""
        self._dispatch = DispatchPlan()
        self.chronicle = Chronicle()

    def placement(self, job: PlannedJob, target: str = "") -> Placement:
        """Groups for the job: where it is, or the least busy ones with room.

        Parameters
        ----------
        target
            Group that shall be its home; empty: any that is open.

        Raises
        ------
        JobError
            No group has room, or the groups it asks for are not there; the message names the job,
            its bytes and the groups.
        """
        was = self._placement.get(job.name)
        if was is not None and all(group in self._groups for group in was.groups):
            return was
        groups = _open_groups(job, self._groups, self._closed, target)
        was = was or self._left.get(job.name)
        has_lost = was is not None and not self._groups.keys() >= set(was.groups)
        others = _beside(self._jobs, self._placement, job.name)
        placement = _wished(job, self._wishes.get(job.name), groups, others, target)
        if placement is None:
            shares = busy_shares(entry for entry in self._estimated() if entry.name != job.name)
            if target:
                job = _at_home_on(job, target)
            if was is not None and has_lost and not target:
                placement = replace_lost(job, was, groups, others, shares)
            else:
                placement = place(job, groups, others, shares)
        self._wishes.pop(job.name, None)
        if job.name in self._jobs:
            self._placement[job.name] = placement
            self._left.pop(job.name, None)
        return placement

    def has_room(self, job: str, placement: Placement) -> bool:
        """Whether a job can be put on groups beside the jobs that are there."""
        others = _beside(self._jobs, self._placement, job)
        return has_room(self._jobs[job], placement, self._groups.values(), others)

    def check_home(self, job: str, group: str) -> None:
        """Check that a job can have its home on a group if no other job is in the way.

        Raises
        ------
        JobError
            Its arrangement, the groups it asks for or its size forbid it.
        """
        place(_at_home_on(self._jobs[job], group), self._groups.values(), {}, {})

    def unplace(self, name: str) -> None:
        """A job is off its group for now; its profile stays."""
        was = self._placement.pop(name, None)
        if was is not None:
            self._left[name] = was
            self._triggers["job left"] = "job left its group"

    def rearrange(self, job: str, placement: Placement, *, is_ordered: bool = False) -> None:
        """Put a job on other groups: at once, or, at another home, when it is placed again.

        Parameters
        ----------
        is_ordered
            Whether the job waits for room there if there is none, instead of going elsewhere.
        """
        was = self._placement.get(job)
        if was is not None and was.home == placement.home:
            self._placement[job] = placement
        else:
            self._wishes[job] = (placement, is_ordered)
        self._moved_at[job] = self._profiles[job].iteration.num_seen
        self.num_moves += 1
        self._triggers["rearranged"] = f"{job} moves to {placement}"

    def let_in(self, group: str, *, is_open: bool) -> None:
        """Say whether jobs may be placed on a group from now on."""
        (self._closed.discard if is_open else self._closed.add)(group)

    def ask(self, reason: str, *, is_anew: bool = False) -> None:
        """Plan as soon as there is something to plan.

        Parameters
        ----------
        is_anew
            Whether the rules of a plan that was applied end with that.
        """
        self._triggers["anew" if is_anew else "asked"] = reason

    def job_arrived(self, job: PlannedJob) -> None:
        """A job is here; it is placed if it was not.

        Raises
        ------
        JobError
            No group has room.
        """
        placement = self.placement(job)
        self._jobs[job.name] = job
        self._profiles[job.name] = JobProfile(job)
        self._placement[job.name] = placement
        self._triggers["job arrived"] = "job arrived"

    def job_left(self, name: str) -> None:
        """A job ended; one that is unknown is ignored, since its arrival may have failed."""
        if self._jobs.pop(name, None) is not None:
            del self._profiles[name]
            self._placement.pop(name, None)
            self._left.pop(name, None)
            self._wishes.pop(name, None)
            self._moved_at.pop(name, None)
            self._triggers["job left"] = "job left"

    def group_added(self, group: GroupFacts) -> None:
        """A group can be used from now on."""
        is_new = group.name not in self._groups
        self._groups[group.name] = group
        if is_new and self.chronicle.num_solves:
            self._triggers["group added"] = "group added"

    def group_lost(self, name: str) -> None:
        """A group is gone; its jobs stay placed there until `placement` is asked again."""
        if self._groups.pop(name, None) is not None:
            self._warm.pop(name, None)
            self._triggers["group lost"] = "group lost"

    def observe(self, record: LeaseRecord) -> None:
        """Take a lease that ended; leases of jobs that left are ignored."""
        profile = self._profiles.get(record.job)
        if profile is None:
            return
        before, num_iterations = profile.sequence, profile.iteration.num_seen
        was_known = profile.is_known
        profile.observe(record)
        if profile.iteration.num_seen > num_iterations and profile.iteration.last is not None:
            self.chronicle.iteration_ended(record.job, profile.iteration.last)
        if profile.is_known and (profile.sequence != before or not was_known):
            self._triggers[f"ops {record.job}"] = f"ops of {record.job} learned"
        self._note_drift(record.job, record.op, profile)
        placement, engines = self._placement.get(record.job), self._jobs[record.job].engines
        if placement is not None and engines:
            is_home = record.group == placement.home
            self._warm.setdefault(record.group, set()).update((is_home, name) for name in engines)

    def due(self, now_s: float) -> str | None:
        """Why a plan is due; None if none is.

        Parameters
        ----------
        now_s
            Now, in seconds on the cluster's clock.
        """
        if self._num_requests == 0:
            reason = "first plan"
        elif self._triggers:
            reason = next(iter(self._triggers.values()))
        elif now_s - self._requested_s >= self._config.period_s:
            reason = f"period of {self._config.period_s:g} s"
        else:
            return None
        # It is asked often, and most often one look at the first job is enough.
        return None if next(self._estimated(), None) is None else reason

    def request(self, reason: str, now_s: float, bytes_per_s: float = STATE_BYTES_S) -> PlanRequest:
        """Freeze what a solve needs; reasons that came up until now count as answered.

        Parameters
        ----------
        bytes_per_s
            How fast states move between host memory and the store.
        """
        self._num_requests += 1
        self._requested_s = now_s
        is_anew = "anew" in self._triggers
        self._triggers.clear()
        jobs = tuple(self._estimated())
        self._planned_s = {
            (job.name, estimate.op): estimate.busy_s for job in jobs for estimate in job.ops
        }
        # A job that is unknown, or between groups, would make every other place look free.
        is_certain = len(jobs) == len(self._jobs)
        may_move = jobs if self._config.is_rearranging and is_certain else ()
        last = self.chronicle.last
        return PlanRequest(
            number=self._num_requests,
            reason=reason,
            now_s=now_s,
            jobs=jobs,
            groups=tuple(self._groups[name] for name in sorted(self._groups)),
            budget_s=self._config.budget_s,
            seed=self._config.seed,
            previous=None if last is None else last.proposal.plan,
            open_groups=frozenset(self._groups) - self._closed,
            left=movable(may_move, self._profiles, self._moved_at),
            bytes_per_s=bytes_per_s,
            warm={group: frozenset(engines) for group, engines in self._warm.items()},
            rules={} if last is None or is_anew else last.proposal.dispatch.rules,
        )

    def adopt(self, proposal: Proposal, now_s: float) -> DispatchPlan:
        """Put a proposal in force; returns what the arbiter shall follow."""
        self.chronicle.add(proposal, now_s)
        self._dispatch = without(proposal.dispatch, self._jobs)
        return self._dispatch

    def brought(
        self, text: str, jobs: Iterable[str], now_s: float
    ) -> tuple[solver.Plan | SeatPlan, PlanRequest]:
        """A plan that somebody brings, and the cluster it shall be made to fit (`proposal_of`).

        Parameters
        ----------
        text
            The plan as JSON.
        jobs
            Jobs that want to run.
        now_s
            Now, in seconds on the cluster's clock.

        Raises
        ------
        JobError
            It is no plan, or for other jobs or groups; the message has the difference.
        """
        plan = read_plan(text)
        check_names(plan, jobs, [name for name in self._groups if name not in self._closed])
        return plan, self.request("applied by an operator", now_s)

    def expected_s(self, job: str, op: str, hint_s: float | None = None) -> float:
        """Expected length of a lease in seconds: measured, else hinted, else a guess."""
        profile = self._profiles.get(job)
        measured_s = None if profile is None else profile.held_s(op)
        if measured_s is not None:
            return measured_s
        return UNKNOWN_S if hint_s is None else hint_s

    def swap_s(self, job: str, op: str) -> float:
        """Expected seconds to bring the op's state in after another job had the group."""
        profile = self._profiles.get(job)
        estimate = None if profile is None else profile.estimate(op)
        return 0.0 if estimate is None else estimate.swap_s

    def upcoming(self, group: str, job: str, op: str) -> tuple[tuple[str, str], ...]:
        """Order in which jobs will use the group, from the given job and op on, as far as known.

        Each (job, op) comes once: what stands late, or nowhere, is needed last.
        """
        order = [(slot.job, slot.op) for slot in self._dispatch.orders.get(group, ())]
        order = [entry for entry in order if entry[0] in self._jobs]
        if (job, op) in order:
            index = order.index((job, op))
            return (*order[index:], *order[:index])
        return ((job, op), *order)

    def status(self) -> PlanStatus:
        """The plan in force, for people."""
        last = self.chronicle.last
        if last is None:
            return PlanStatus()
        proposal = last.proposal
        reasons = [proposal.request.reason, proposal.note]
        return PlanStatus(
            status=proposal.status,
            objective_s=proposal.objective_s,
            bound_s=proposal.bound_s,
            bound_class=proposal.bound_class,
            is_verified=proposal.is_verified,
            num_solves=self.chronicle.num_solves,
            reason="; ".join(reason for reason in reasons if reason),
            adopted_s=last.adopted_s,
            num_moves=self.num_moves,
            order={
                group: tuple(f"{slot.job}:{slot.op}" for slot in order)
                for group, order in self._dispatch.orders.items()
            },
        )

    def plan_json(self, newest: int | None = None) -> dict[str, object]:
        """The plan in force and the history of solves, as JSON types; see `Chronicle.to_json`."""
        return self.chronicle.to_json(newest)

    def _estimated(self) -> Iterator[EstimatedJob]:
        """Jobs that can be planned: their group is there and their ops are known."""
        for name, job in self._jobs.items():
            placement, ops = self._placement.get(name), self._profiles[name].estimates()
            if placement is None or not ops:
                continue
            if all(group in self._groups for group in placement.groups):
                yield EstimatedJob(job, placement, ops)

    def _note_drift(self, job: str, op: str, profile: JobProfile) -> None:
        planned_s, estimate = self._planned_s.get((job, op)), profile.estimate(op)
        if planned_s is None or estimate is None:
            return
        change_s = abs(estimate.busy_s - planned_s)
        if change_s > max(self._config.drift_fraction * planned_s, LEAST_DRIFT_S):
            percent = 100 * change_s / planned_s
            self._triggers[f"drift {job}:{op}"] = f"drift of {job}:{op} by {percent:.0f} %"


def movable(
    jobs: Iterable[EstimatedJob], profiles: Mapping[str, JobProfile], moved_at: Mapping[str, int]
) -> dict[str, int]:
    """Job → iterations it still has to run, of those seen for long enough where they are."""
    found = {}
    for entry in jobs:
        profile = profiles[entry.name]
        num_seen = profile.iteration.num_seen - moved_at.get(entry.name, 0)
        is_known = all(estimate.is_measured for estimate in entry.ops)
        if is_known and num_seen >= LEAST_ITERATIONS and entry.job.iterations is not None:
            found[entry.name] = max(entry.job.iterations - profile.newest - 1, 0)
    return found


def _beside(
    jobs: Mapping[str, PlannedJob], placements: Mapping[str, Placement], job: str
) -> Placed:
    """All jobs but one, and where they are."""
    return {name: (jobs[name], at) for name, at in placements.items() if name != job}


def _wished(
    job: PlannedJob,
    wish: tuple[Placement, bool] | None,
    groups: Sequence[GroupFacts],
    others: Placed,
    target: str,
) -> Placement | None:
    """Where a plan wants the job, if it can go there; None if it may be placed anywhere.

    Raises
    ------
    JobError
        There is no room yet, and it shall wait for it.
    """
    if wish is None:
        return None
    placement, is_ordered = wish
    is_open = {group.name for group in groups} >= set(placement.groups)
    if not is_open or target not in {"", placement.home}:
        return None
    if is_ordered:
        check_room(job, placement, groups, others)
    elif not has_room(job, placement, groups, others):
        return None
    return placement


def _open_groups(
    job: PlannedJob, groups: Mapping[str, GroupFacts], closed: Container[str], target: str
) -> list[GroupFacts]:
    """Groups that take jobs; raises JobError if none of those that come into question does."""
    names = [target] if target else list(groups)
    if groups and all(name in closed for name in names):
        raise JobError(
            f"job {job.name!r} cannot be placed: {', '.join(names)} draining, which takes no "
            "job; undrain a group (plexrl undrain), or add one"
        )
    return [group for name, group in groups.items() if name not in closed]


def _at_home_on(job: PlannedJob, group: str) -> PlannedJob:
    """The job, told to train on a group."""
    return replace(job, pins={**job.pins, "train": group})


__all__ = [
    "STATE_BYTES_S",
    "GroupFacts",
    "PlanRequest",
    "PlannedJob",
    "Planner",
    "Proposal",
    "solve",
]
