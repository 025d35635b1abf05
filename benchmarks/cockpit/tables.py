"""The scheduler's own tables, filled and kept moving as by many jobs on many groups.

What runs is made up; the tables, the execution log, the planner and its plan are the real ones.
Each job has an iteration every `ITERATION_S`, a rollout and a train function long; the jobs of a
group take turns.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from dataclasses import dataclass, replace

from plexrl.clock import Clock
from plexrl.core.jobs import JobFacts
from plexrl.core.placement import Placement
from plexrl.core.states import StoreUse, Tier, Traffic
from plexrl.core.status import JobState
from plexrl.planning.config import PlanningConfig
from plexrl.planning.planner import GroupFacts, PlannedJob, Planner, solve
from plexrl.runtime.coordinator import Coordinator
from plexrl.runtime.ledger import FunctionEntry
from plexrl.runtime.view import ClusterView
from plexrl.services.reports import LeaseEnded, ServiceSnapshot
from solver.dispatch.arbiter import Arbiter
from solver.dispatch.rules import PlanOrderWithBackfill
from solver.trace import IterationRecord, Outcome

ITERATION_S = 4.0
NUM_ITERATIONS = 200
"""Committed iterations of each job when the tables are full."""
NUM_LOGGED = 20
"""Iterations of each job whose leases are in the log by then."""
NUM_SOLVES = 512
"""Solves in the chronicle by then: as many as it remembers."""
REPLAN_S = 10.0
STATE_BYTES = 64 << 20
FUNCTIONS = (("actor.rollout.0", 0.0, 0.5), ("actor.train.0", 0.6, 0.35))
"""Op, its begin and its length, as shares of a job's turn."""


@dataclass(frozen=True, slots=True, order=True)
class Moment:
    """A lease begins or ends."""

    at_s: float
    number: int
    """Of the job."""
    index: int
    """Of the iteration."""
    function: int
    is_end: bool


class BusyTables:
    """Tables of a cluster where everything is in motion.

    Parameters
    ----------
    num_groups, num_jobs
        Size of the cluster.
    clock
        The system clock to use; the cluster is as old as its history when it is made.

    Attributes
    ----------
    view : ClusterView
        What the pages read.
    """

    def __init__(self, num_groups: int, num_jobs: int, clock: Clock) -> None:
        self._num_groups, self._num_jobs = num_groups, num_jobs
        self._jobs_per_group = -(-num_jobs // num_groups)
        self._epoch_s = clock() - NUM_ITERATIONS * ITERATION_S
        arbiter = Arbiter(PlanOrderWithBackfill(slack=0.1, overdue=0.3))
        self._tables = Coordinator(Planner(PlanningConfig()), arbiter, self._epoch_s)
        self._moments: list[Moment] = []
        self._moved: defaultdict[str, int] = defaultdict(int)
        self._planned_s = 0.0
        for number in range(num_groups):
            facts = GroupFacts(self._group(number), 1 << 34, 8)
            self._tables.group_up(facts, f"tcp://10.0.0.1:{40_000 + number}", 1 << 34, clock())
        for number in range(num_jobs):
            self._add_job(number)
        self.run_until(clock())
        self._plan(clock())
        self.view = ClusterView(self._tables, dict, lambda: 0, clock)

    def run_until(self, now_s: float) -> None:
        """Let everything happen that happens until a moment of the system clock."""
        while self._moments and self._moments[0].at_s <= now_s:
            moment = heapq.heappop(self._moments)
            (self._end if moment.is_end else self._begin)(moment)
        if self._planned_s and now_s - self._planned_s >= REPLAN_S:
            self._adopt_again(now_s)

    def _group(self, number: int) -> str:
        return f"group-{number % self._num_groups}"

    def _add_job(self, number: int) -> None:
        name, group = f"job-{number}", self._group(number)
        turn_s = ITERATION_S / self._jobs_per_group
        facts = JobFacts(name, (), 2 * STATE_BYTES, 2 * NUM_ITERATIONS, 2.5, 1.0, {})
        self._tables.jobs.add(facts, Placement(group), 0.0)
        self._tables.jobs.move(name, JobState.RUNNING, 0.0)
        ops = tuple((op, share * turn_s, 0.1 * turn_s) for op, _, share in FUNCTIONS)
        self._tables.planner.job_arrived(
            PlannedJob(name, ops, 2 * STATE_BYTES, 2.5, pins={"rollout": group, "train": group})
        )
        for index in range(NUM_ITERATIONS - NUM_LOGGED):
            self._commit(number, index)
        self._expect(number, NUM_ITERATIONS - NUM_LOGGED, 0, is_end=False)

    def _expect(self, number: int, index: int, function: int, *, is_end: bool) -> None:
        turn_s = ITERATION_S / self._jobs_per_group
        # Groups are out of step with each other, so that something happens all the time.
        offset_s = ITERATION_S * (number % self._num_groups) / self._num_groups
        begins_s = self._epoch_s + index * ITERATION_S - offset_s
        begins_s += turn_s * (number // self._num_groups)
        _, start, length = FUNCTIONS[function]
        at_s = begins_s + turn_s * (start + (length if is_end else 0.0))
        heapq.heappush(self._moments, Moment(at_s, number, index, function, is_end))

    def _begin(self, moment: Moment) -> None:
        job, group = f"job-{moment.number}", self._group(moment.number)
        op = FUNCTIONS[moment.function][0]
        key = f"{job}-{op}-{moment.index}"
        ledger = self._tables.ledger
        entry = FunctionEntry(key, job, "actor", op, moment.index, moment.index, None)
        ledger.know(entry)
        ledger.ready(key, moment.at_s - 0.1)
        ledger.admitted(key, (group,))
        ledger.started(key, moment.at_s)
        self._tables.jobs.set_waits_for(job, "")
        self._expect(moment.number, moment.index, moment.function, is_end=True)

    def _end(self, moment: Moment) -> None:
        job, group = f"job-{moment.number}", self._group(moment.number)
        op, _, share = FUNCTIONS[moment.function]
        key = f"{job}-{op}-{moment.index}"
        self._moved[group] += 1
        report = LeaseEnded(
            id=key,
            group=group,
            started_s=moment.at_s - share * ITERATION_S / self._jobs_per_group,
            ended_s=moment.at_s,
            swap_s=0.01,
            swap_source=Tier.HOST,
            swap_bytes=STATE_BYTES,
            outcome=Outcome.DONE,
            snapshot=self._snapshot(moment, group),
        )
        self._tables.groups.note(report, (group,))
        record = self._tables.ledger.ended(report)
        assert record is not None
        self._tables.planner.observe(record)
        self._tables.ledger.forget(key)
        self._tables.jobs.set_waits_for(job, f"its turn on {group}")
        if moment.function + 1 < len(FUNCTIONS):
            self._expect(moment.number, moment.index, moment.function + 1, is_end=False)
        else:
            self._commit(moment.number, moment.index)
            self._expect(moment.number, moment.index + 1, 0, is_end=False)

    def _snapshot(self, moment: Moment, group: str) -> ServiceSnapshot:
        """What the group's service says: two versions of each of its jobs, one on the device."""
        jobs = [
            f"job-{number}"
            for number in range(moment.number % self._num_groups, self._num_jobs, self._num_groups)
        ]
        held = tuple(f"{job}/actor@{moment.index - i}" for job in jobs for i in range(2))
        moved = self._moved[group]
        return ServiceSnapshot(
            traffic=(
                Traffic(Tier.HOST, Tier.DEVICE, moved, moved * STATE_BYTES, 0.01 * moved),
                Traffic(Tier.DEVICE, Tier.HOST, moved, moved * STATE_BYTES, 0.01 * moved),
                Traffic(Tier.HOST, Tier.STORE, moved, moved * STATE_BYTES, 0.1 * moved),
            ),
            host_used_bytes=len(held) * STATE_BYTES,
            host_budget_bytes=1 << 34,
            resident={
                Tier.DEVICE: (f"job-{moment.number}/actor@{moment.index}",),
                Tier.HOST: held,
                Tier.STORE: held,
            },
            engine_pid=10_000 + moment.number % self._num_groups,
            num_engine_starts=1,
            store=StoreUse(num_bytes=len(held) * STATE_BYTES),
        )

    def _commit(self, number: int, index: int) -> None:
        metrics = tuple((f"metric_{i}", 0.5) for i in range(8))
        reward = min(1.0, 0.2 + 0.8 * index / NUM_ITERATIONS + 0.02 * (index * number % 7))
        start_s = index * ITERATION_S
        self._tables.jobs.commit(
            IterationRecord(
                f"job-{number}",
                index,
                start_s,
                start_s + ITERATION_S,
                (*metrics, ("reward_mean", reward)),
            )
        )

    def _plan(self, now_s: float) -> None:
        """Solve once, and fill the chronicle as if that had been done all along."""
        planner = self._tables.planner
        proposal = solve(planner.request("job arrived", now_s - self._epoch_s))
        for number in range(1, NUM_SOLVES + 1):
            request = replace(proposal.request, number=number)
            at_s = now_s - REPLAN_S * (NUM_SOLVES - number)
            self._tables.adopt(replace(proposal, request=request), at_s)
            for job in range(self._num_jobs):
                planner.chronicle.iteration_ended(f"job-{job}", ITERATION_S)
        self._planned_s = now_s

    def _adopt_again(self, now_s: float) -> None:
        last = self._tables.planner.chronicle.last
        assert last is not None
        request = replace(
            last.proposal.request, number=last.proposal.request.number + 1, reason="period of 10 s"
        )
        self._tables.adopt(replace(last.proposal, request=request), now_s)
        self._planned_s = now_s
