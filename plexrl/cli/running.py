"""Runs jobs on a cluster, watched: what `demo`, `run` and `resume` have in common."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

from rich.console import Console

from dataflow.jobs import JobSpec
from plexrl.cli.live import Display
from plexrl.cli.stretch import Stretch, cut, traffic_between, traffic_of
from plexrl.core.status import ClusterStatus, JobStatus, PlanStatus
from plexrl.dashboard.lanes import AdoptedPlan, adopted_plan
from plexrl.runtime.client import Cluster
from solver.trace import IterationRecord

POLL_S = 0.2
"""Seconds between snapshots: five a second look alive and cost the scheduler 1 ms each."""


class PlanSource(Protocol):
    """Gives the plan in force as JSON types."""

    def __call__(self) -> Mapping[str, object]:
        """The plan as it stands."""
        ...


class PlanTape:
    """Remembers each plan that came into force, and which one served the most jobs.

    A plan in force when the jobs have left names none of them any more.
    """

    def __init__(self) -> None:
        self._plans: list[AdoptedPlan] = []
        self._told: Mapping[str, object] = {}
        self._best: tuple[int, PlanStatus, Mapping[str, object]] | None = None

    def note(self, status: ClusterStatus, source: PlanSource) -> None:
        """Look at a snapshot; the plan itself is fetched only when another came into force."""
        plan = status.plan
        if plan.adopted_s is None:
            return
        is_new = not self._plans or self._plans[-1].adopted_s != plan.adopted_s
        if is_new:
            self._told = source()
            self._plans.append(adopted_plan(self._told, plan.adopted_s))
        num_jobs = len({entry.split(":")[0] for order in plan.order.values() for entry in order})
        if self._best is None or num_jobs >= self._best[0]:
            self._best = (num_jobs, plan, self._told)

    @property
    def plans(self) -> tuple[AdoptedPlan, ...]:
        """Plans in order of adoption."""
        return tuple(self._plans)

    def best(self) -> tuple[PlanStatus, Mapping[str, object]]:
        """The newest plan among those that served the most jobs, and all that is told of it."""
        if self._best is None:
            return PlanStatus(), {}
        return self._best[1], self._best[2]


@dataclass(frozen=True, slots=True)
class Ran:
    """Jobs that ran together until each of them ended."""

    stretch: Stretch
    statuses: Mapping[str, JobStatus]
    """Job → how it ended."""
    plans: tuple[AdoptedPlan, ...]
    plan: PlanStatus
    """The plan that served the most jobs; ``num_solves`` counts the solves of this stretch."""
    plan_json: Mapping[str, object]
    """That plan, the problem it solves, and the history of solves."""
    earlier: tuple[IterationRecord, ...]
    """Iterations that resumed jobs committed before."""


def run_jobs(
    cluster: Cluster,
    jobs: Sequence[JobSpec],
    console: Console,
    *,
    title: str,
    resume: bool = False,
) -> Ran:
    """Submit jobs and watch them until all have ended, however they did.

    Parameters
    ----------
    cluster
        Where to run them.
    jobs
        What to run, at the same time.
    console
        Where to show them; standard error, if standard output carries JSON.
    title
        Heading of the display.
    resume
        Go on from what the store holds.

    Raises
    ------
    InputError
        One of the jobs cannot run; those submitted before it are cancelled.
    """
    before = cluster.status()
    _submit_all(cluster, jobs, resume=resume)
    names = [job.name for job in jobs]
    tape = PlanTape()
    with Display(console, title=title, jobs=frozenset(names)) as display:
        after = _watch(cluster, names, display, tape)
    trace = cluster.trace()
    plan, plan_json = tape.best()
    return Ran(
        stretch=cut(
            trace.leases,
            trace.iterations,
            names,
            num_groups=len(after.groups),
            traffic=traffic_between(traffic_of(before), traffic_of(after)),
        ),
        earlier=tuple(record for record in trace.earlier if record.job in names),
        statuses={job.name: job for job in after.jobs if job.name in names},
        # One that was in force already was made for other jobs.
        plans=tuple(p for p in tape.plans if p.adopted_s >= before.now_s),
        plan=replace(plan, num_solves=after.plan.num_solves - before.plan.num_solves),
        plan_json={**plan_json, "history": cluster.plan().get("history", [])},
    )


def _submit_all(cluster: Cluster, jobs: Iterable[JobSpec], *, resume: bool) -> None:
    runs = []
    try:
        for job in jobs:
            runs.append(cluster.submit(job, resume=resume))  # noqa: PERF401 (kept on an error)
    except BaseException:
        for run in runs:
            run.cancel()
        raise


def _watch(
    cluster: Cluster, names: Sequence[str], display: Display, tape: PlanTape
) -> ClusterStatus:
    while True:
        status = cluster.status()
        display.update(status)
        tape.note(status, partial(cluster.plan, 0))
        states = {job.name: job.state for job in status.jobs}
        if all(states[name].is_terminal for name in names):
            return status
        time.sleep(POLL_S)
