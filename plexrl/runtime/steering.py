"""What operators ask of a running cluster: pause and move jobs, drain groups, replay, plan anew.

Jobs leave a group in three steps (`plexrl.core.relocations`): the driver ends with the iteration,
the group writes what it holds and drops it, and the job rests or is placed again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection

from plexrl.clock import Clock
from plexrl.core.jobs import JobEntry
from plexrl.core.placement import Placement
from plexrl.core.relocations import Aim, Relocation, Resampling, Step
from plexrl.core.status import JobState
from plexrl.errors import JobError
from plexrl.planning.applying import proposal_of
from plexrl.planning.planner import Proposal
from plexrl.runtime import messages
from plexrl.runtime.coordinator import Coordinator
from plexrl.runtime.drivers import DriverPlacement
from plexrl.runtime.messages import AppliedPlan, Order, pack
from plexrl.runtime.outbox import Outbox
from plexrl.services.reports import JobLetGo
from plexrl.spelling import hint

logger = logging.getLogger("plexrl.scheduler")

Handler = Callable[..., Awaitable[bytes]]


class Steering:
    """Carries out what operators ask.

    Parameters
    ----------
    coordinator, drivers
        What is changed.
    outbox
        Tells drivers and services.
    placed
        Tells the groups of a job that it was placed there.
    settle
        Places drivers and carries out what the arbiter answered.
    """

    def __init__(
        self,
        coordinator: Coordinator,
        drivers: DriverPlacement,
        outbox: Outbox,
        *,
        placed: Callable[[str], None],
        settle: Callable[[], None],
        clock: Clock,
    ) -> None:
        self._coordinator = coordinator
        self._drivers = drivers
        self._outbox = outbox
        self._placed = placed
        self._settle = settle
        self._clock = clock
        self._table = coordinator.relocations
        self._unanswered: set[tuple[str, str]] = set()
        """(job, worker) that were told to let go of each other and have not answered."""

    def handlers(self) -> dict[str, Handler]:
        """Name of the RPC → handler; each answers what will happen, in plain words."""
        return {
            messages.PAUSE: self.pause,
            messages.UNPAUSE: self.unpause,
            messages.MOVE: self.move,
            messages.REPLAY: self.replay,
            messages.DRAIN: self.drain,
            messages.UNDRAIN: self.undrain,
            messages.REPLAN: self.replan,
            messages.APPLY: self.apply,
        }

    async def pause(self, job: str, reason: str, is_now: bool) -> bytes:
        """Let a job rest after its iteration, or at once."""
        entry = self._live(job)
        if entry.state is JobState.PAUSED and job not in self._table:
            return pack(f"job {job} is paused already")
        self._table.ask(job, Aim.PAUSE, reason)
        return pack(self._set_off(job, is_now=is_now))

    async def unpause(self, job: str) -> bytes:
        """Let a job go on that rests or is about to."""
        entry, row = self._live(job), self._table.get(job)
        if entry.state is not JobState.PAUSED and (row is None or row.aim is not Aim.PAUSE):
            raise JobError(f"job {job!r} is {entry.state}, not paused; there is nothing to unpause")
        self._table.ask(job, Aim.MOVE, "unpaused")
        if row is None:
            self._place(job)
            self._settle()
        return pack(self._told(job))

    async def move(self, job: str, group: str, reason: str, is_now: bool) -> bytes:
        """Place a job on another group after its iteration, or at once."""
        entry, row = self._live(job), self._table.get(job)
        _check_group(group, self._coordinator.groups.names())
        if self._coordinator.groups.why_closed(group) is not None:
            raise JobError(f"group {group!r} is draining; undrain it first: plexrl undrain {group}")
        if entry.state is JobState.PAUSED and (row is None or row.aim is Aim.PAUSE):
            raise JobError(f"job {job!r} is paused; unpause it first: plexrl unpause {job}")
        if entry.placement.home == group and row is None:
            return pack(f"job {job} is on {group} already")
        self._coordinator.planner.check_home(job, group)
        self._table.ask(job, Aim.MOVE, reason, group)
        return pack(self._set_off(job, is_now=is_now))

    async def replay(self, job: str) -> bytes:
        """End the iteration of a job that runs, and do it again from the last committed version."""
        entry = self._live(job)
        if not entry.driver or job in self._table:
            raise JobError(
                f"job {job!r} runs no iteration right now ({self._told(job)}); there is nothing "
                "to cancel"
            )
        self._outbox.order(entry.driver, job, Order.REPLAY)
        return pack(f"job {job} does iteration {entry.num_committed} again")

    async def drain(self, group: str, reason: str, is_now: bool) -> bytes:
        """Let no iteration begin on a group; its jobs go on elsewhere."""
        _check_group(group, self._coordinator.groups.names())
        self._coordinator.groups.close(group, reason)
        self._coordinator.planner.let_in(group, is_open=False)
        active = self._coordinator.jobs.active()
        jobs = [entry.facts.name for entry in active if group in entry.placement.groups]
        for job in jobs:
            if job not in self._table:
                self._table.ask(job, Aim.MOVE, f"{group} drains" + f": {reason}" * bool(reason))
            self._set_off(job, is_now=is_now)
        return pack(f"group {group} drains; jobs that leave it: {', '.join(jobs) or 'none'}")

    async def undrain(self, group: str) -> bytes:
        """Let iterations begin on a group again."""
        if self._coordinator.groups.why_closed(group) is None:
            _check_group(group, self._coordinator.groups.names())
            return pack(f"group {group} is not draining")
        self._coordinator.groups.open(group)
        self._coordinator.planner.let_in(group, is_open=True)
        self.proceed()
        return pack(f"group {group} takes jobs again")

    async def replan(self, reason: str) -> bytes:
        """Plan as soon as there is something to plan."""
        self._coordinator.planner.ask(reason or "asked by an operator", is_anew=True)
        return pack("a plan is made now, or as soon as a job's functions were measured")

    async def apply(self, plan: str) -> bytes:
        """Put a plan made elsewhere into force: its orders or its rule at once, then moves."""
        coordinator, active = self._coordinator, _settled(self._coordinator)
        now_s = self._clock() - coordinator.epoch_s
        brought, request = coordinator.planner.brought(plan, active, now_s)
        # With many jobs it takes seconds, in which leases must go on.
        try:
            proposal = await asyncio.to_thread(proposal_of, brought, request)
        except JobError:
            coordinator.planner.ask("an operator's plan was refused")
            raise
        if _settled(coordinator).keys() != active.keys():
            raise JobError("jobs came or left meanwhile: apply a plan for those that are there now")
        coordinator.adopt(proposal, self._clock())
        moves = []
        for row in proposal.request.jobs:
            entry = active[row.name]
            self._table.resampled(row.name)
            if row.placement != entry.placement:
                moves.append((row.name, str(entry.placement), str(row.placement)))
                self._rearrange(entry, row.placement, "a plan was applied", is_ordered=True)
        self._settle()
        ruled = tuple(proposal.dispatch.rules)
        return pack(AppliedPlan(tuple(moves), proposal.cycles_s, proposal.slowdowns, ruled))

    def adopted(self, proposal: Proposal) -> None:
        """A plan is in force: a job that it wants elsewhere goes there after its iteration."""
        move, coordinator = proposal.rearrangement, self._coordinator
        if move is not None and move.job in coordinator.jobs:
            entry = coordinator.jobs[move.job]
            wanted = self._table.resampling(move.job)
            is_ordered = wanted is not None and wanted.is_ordered
            if entry.state is JobState.RUNNING and not (move.job in self._table or is_ordered):
                reason = f"the plan gains {move.gain:.0%}"
                self._rearrange(entry, move.placement, reason, is_ordered=False)
        self._settle()

    def _rearrange(
        self, entry: JobEntry, placement: Placement, reason: str, *, is_ordered: bool
    ) -> None:
        job = entry.facts.name
        if placement.home == entry.placement.home:
            self._table.resample(job, Resampling(placement, reason, is_ordered))
            return
        self._coordinator.planner.rearrange(job, placement, is_ordered=is_ordered)
        self._table.ask(job, Aim.MOVE, reason, placement.home if is_ordered else "")
        self._set_off(job, is_now=False)

    def iteration_ended(self, job: str) -> None:
        """A job's functions that become ready from now on run where the plan wants them."""
        wanted = self._table.resampling(job)
        if wanted is None:
            return
        placement = wanted.placement
        # It drains or was lost since that was planned.
        is_gone = not self._coordinator.groups.are_open(placement.groups)
        if is_gone or not self._coordinator.planner.has_room(job, placement):
            if is_gone or not wanted.is_ordered:
                self._table.resampled(job)
            return
        self._table.resampled(job)
        logger.info("job %s samples on %s from now on", job, placement)
        self._coordinator.planner.rearrange(job, placement)
        self._coordinator.jobs.set_placement(job, placement)
        self._placed(job)

    def stepped_aside(self, job: str) -> bool:
        """A driver has ended; returns whether that was asked for."""
        row = self._table.get(job)
        if row is None or row.step is not Step.ASKED:
            return False
        coordinator = self._coordinator
        coordinator.jobs.set_driver(job, "")
        self._drivers.hold(job)
        groups = coordinator.jobs[job].placement
        row = self._table.stepped_aside(job, frozenset(groups.groups))
        coordinator.planner.unplace(job)
        if row.aim is Aim.PAUSE:
            coordinator.rest(job, self._clock())
        logger.info(
            "job %s left %s: %s", job, groups, row, extra={"job": job, "group": str(groups)}
        )
        self.proceed()
        return True

    def let_go(self, report: JobLetGo) -> None:
        """A group let go of a job, or could not."""
        row = self._coordinator.groups.get(report.group)
        if row is not None:
            self._unanswered.discard((report.job, row.worker))
            self._coordinator.groups.note_snapshot(report.group, report.snapshot)
        known = self._table.get(report.job)
        if known is None or known.step is not Step.LETTING_GO:
            return
        self._table.let_go(report.job, report.group, report.error)
        if not report.error:
            self.proceed()

    def worker_lost(self, worker: str) -> None:
        """A worker is gone; one that comes back at its address was told nothing."""
        self._unanswered = {entry for entry in self._unanswered if entry[1] != worker}

    def rescue(self) -> None:
        """Take jobs whose group does not come back to others, by way of what they still have."""
        for job in self._coordinator.stranded(self._clock()):
            if job not in self._table:
                lost = self._coordinator.jobs[job].placement
                logger.warning("job %s leaves %s: a group of it is gone", job, lost)
                self._table.ask(job, Aim.MOVE, "a group of it is gone")
            # Also of one that was asked before: the iteration it shall end first never will.
            self._set_off(job, is_now=True)

    def job_ended(self, job: str) -> None:
        """A job goes nowhere any more."""
        self._table.end(job)

    def proceed(self) -> None:
        """Bring every job on its way as far as it can get; called again from time to time."""
        for row in self._table.at(Step.LETTING_GO):
            self._let_go_everywhere(row)
        for row in self._table.at(Step.WAITING):
            self._place(row.job)
        self._settle()

    def _let_go_everywhere(self, row: Relocation) -> None:
        is_off = not row.holders
        for group in row.holders:
            known = self._coordinator.groups.get(group)
            if known is None:
                # What it held is gone with it; what was durable is in the store.
                is_off = self._table.let_go(row.job, group)
            elif (row.job, known.worker) not in self._unanswered:
                self._unanswered.add((row.job, known.worker))
                self._outbox.forget(known.worker, row.job)
        if not is_off:
            return
        if row.aim is Aim.PAUSE:
            self._table.rest(row.job)
        else:
            self._place(row.job)

    def _place(self, job: str) -> None:
        row = self._table.get(job)
        assert row is not None
        target = row.target if self._coordinator.groups.get(row.target) is not None else ""
        try:
            self._coordinator.settle_down(job, target, self._clock())
        except JobError as error:
            self._table.wait(job, str(error))
            return
        self._placed(job)
        self._table.end(job)
        self._drivers.release(job)

    def _set_off(self, job: str, *, is_now: bool) -> str:
        entry, row = self._coordinator.jobs[job], self._table.get(job)
        assert row is not None
        if row.step is Step.ASKED and entry.driver:
            order = Order.STEP_ASIDE_NOW if is_now else Order.STEP_ASIDE
            self._outbox.order(entry.driver, job, order)
        elif row.step is Step.ASKED:
            self.stepped_aside(job)
        elif row.aim is Aim.PAUSE:
            if entry.state is not JobState.PAUSED:
                self._coordinator.rest(job, self._clock())
            if row.step is Step.WAITING:
                self._table.rest(job)
        else:
            self.proceed()
        return self._told(job)

    def _told(self, job: str) -> str:
        """Where a job is on its way, in plain words."""
        row, entry = self._table.get(job), self._coordinator.jobs[job]
        if row is not None:
            return f"job {job} {row}"
        where = "" if entry.state is JobState.PAUSED else f" on {entry.placement}"
        return f"job {job} is {entry.state}{where}"

    def _live(self, job: str) -> JobEntry:
        entry = self._coordinator.jobs[job]
        if entry.state.is_terminal:
            raise JobError(f"job {job!r} is {entry.state}: it holds no group; nothing was changed")
        return entry


def _settled(coordinator: Coordinator) -> dict[str, JobEntry]:
    """Jobs that want to run; raises JobError if one of them is on its way somewhere."""
    active = {entry.facts.name: entry for entry in coordinator.jobs.active()}
    away = [f"job {j} {row}" for j in active if (row := coordinator.relocations.get(j))]
    if away:
        raise JobError(f"{'; '.join(away)}: apply the plan when that is done")
    return active


def _check_group(group: str, names: Collection[str]) -> None:
    """Raise unless a worker announces this group."""
    if group not in names:
        raise JobError(
            f"no group is called {group!r}; {hint(group, names)}"
            if names
            else f"no group is called {group!r}: no worker announces one"
        )
