"""Jobs on two groups: all arrangements live, what plans promise, jobs that come and go.

All jobs are run alone first, in each of the three arrangements, on groups of their own; then all
together, left to the planner. What sharing should save is simulated from the leases of the runs
alone, on the groups the jobs were given, and compared with what it saved.

The control: *alone* is a group of one's own, not a machine of one's own. Colocated jobs, which
take one group each, run two at a time, each told to stay on a group that no other job uses, as two
dedicated groups of this machine would. Both groups of a machine without accelerators share its
memory and caches, which lengthens their functions when they compute at once whoever they belong to;
groups of accelerators do not. Split and asynchronous jobs take both groups and run one at a time.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import plexrl
from benchmarks.contract import Progress
from dataflow.jobs import JobSpec
from plexrl.core.status import JobStatus
from solver.dispatch.events import TICKS_PER_S
from solver.simulate import SimJob, SimOp, simulate
from solver.trace import LeaseRecord, busy_s

TIMEOUT_S = 900.0

NUM_JOBS = 4
GROUPS = ("group-0", "group-1")

TOOL_DELAY_S = 1.5
"""Median seconds the calculator answers late: two engines, their tools and the rest of the cluster
then want 1.2 cores on average. At 0.7 s they want 1.6 and wait for processors, of which a cluster
of accelerators has enough."""
CROWDED_DELAY_S = 0.2
"""The same for jobs that come and go: two of them on one group are in each other's way."""

ARRANGEMENTS: Mapping[str, Mapping[str, Any]] = {
    "colocated": {"arrangement": "colocated"},
    "split": {"arrangement": "split"},
    "asynchronous": {"arrangement": "asynchronous", "staleness": 1},
}
"""How users run one job on groups of its own: settings of the job."""

NUM_OWN_GROUPS = {"colocated": 1, "split": 2, "asynchronous": 2}
"""Groups that each reserves for one job."""

MakeJob = Callable[[str, int, int, float], JobSpec]
"""Name, number and iterations of a job, and seconds its tool answers late, to the job."""


@dataclass(frozen=True, slots=True)
class Ran:
    """One job that ran."""

    status: JobStatus
    leases: tuple[LeaseRecord, ...]

    @property
    def wall_s(self) -> float:
        """From its first iteration's begin to its last commit."""
        assert self.status.ended_s is not None
        return self.status.ended_s - self.status.started_s


def measure(
    make: MakeJob, iterations: int, progress: Progress
) -> tuple[dict[str, float], dict[str, float]]:
    """Run everything; returns figures and peers."""
    figures: dict[str, float] = {}
    peers: dict[str, float] = {}
    with _cluster() as cluster:
        progress("two groups: warm-up")
        for name, settings in ARRANGEMENTS.items():
            _run(cluster, [replace(make(f"warm-{name}", 0, 2, 0.0), **settings)])
        _warm_groups(cluster, make)
        alone: dict[str, list[Ran]] = {}
        for name, settings in ARRANGEMENTS.items():
            jobs = [make(f"{name}-{n}", n, iterations, TOOL_DELAY_S) for n in range(NUM_JOBS)]
            jobs = [replace(job, **settings) for job in jobs]
            progress(f"two groups: alone, {name}")
            alone[name] = _each_alone(cluster, jobs, NUM_OWN_GROUPS[name])
        starts = _engine_starts(cluster)
        moves = cluster.status().plan.num_moves
        progress("two groups: all together")
        jobs = [make(f"all-{n}", n, iterations, TOOL_DELAY_S) for n in range(NUM_JOBS)]
        together = _run(cluster, jobs)
        figures |= _steady(alone["colocated"], together)
        figures["engine_rebuilds"] = float(_engine_starts(cluster) - starts)
        figures["moves"] = float(cluster.status().plan.num_moves - moves)
        reserved_s = len(GROUPS) * _makespan_s(together)
        for name, runs in alone.items():
            own_s = NUM_OWN_GROUPS[name] * sum(run.wall_s for run in runs)
            figures[f"saving_against_{name}"] = 1 - reserved_s / own_s
            peers[f"group_s_{name}"] = own_s
        figures["group_s"] = reserved_s
        figures["num_errors_two_groups"] = float(cluster.status().num_errors)
    return {**figures, **_come_and_go(make, iterations, progress)}, peers


def _each_alone(cluster: plexrl.LocalCluster, jobs: Sequence[JobSpec], num_own: int) -> list[Ran]:
    """Run jobs on groups of their own, as many at a time as there are groups for."""
    if num_own == len(GROUPS):
        return [run for job in jobs for run in _run(cluster, [job])]
    found: list[Ran] = []
    for start in range(0, len(jobs), len(GROUPS)):
        places = zip(jobs[start : start + len(GROUPS)], GROUPS, strict=True)
        runs = _run(cluster, [replace(job, groups={"train": group}) for job, group in places])
        for run, group in zip(runs, GROUPS, strict=True):
            if any(lease.group != group for lease in run.leases):
                raise RuntimeError(f"job {run.status.name!r} left {group!r}, its group of its own")
        found += runs
    return found


def _steady(alone: Sequence[Ran], together: Sequence[Ran]) -> dict[str, float]:
    """What sharing saved against groups of one's own, and what simulation says it should."""
    makespan_s = _makespan_s(together)
    load_s = sum(busy_s(run.leases) for run in alone)
    longest_s = max(run.wall_s for run in alone)
    own_s = sum(run.wall_s for run in alone)
    jobs = [_simulated(own, shared) for own, shared in zip(alone, together, strict=True)]
    done = simulate(jobs)
    alone_ticks = sum(done.alone_ticks.values())
    return {
        "makespan_ratio_two_groups": makespan_s / max(load_s / len(GROUPS), longest_s),
        "term_ratio_two_groups": load_s / len(GROUPS) / longest_s,
        # Two groups compute at once more often when jobs share them than when each has its own.
        "busy_inflation_two_groups": sum(busy_s(run.leases) for run in together) / load_s,
        "saving_measured": 1 - len(GROUPS) * makespan_s / own_s,
        "saving_predicted": 1 - len(GROUPS) * done.makespan_ticks / alone_ticks,
    }


def _simulated(own: Ran, shared: Ran) -> SimJob:
    """A job with the lengths it had alone, on the groups it was given beside others."""
    places = {lease.op: lease.group for lease in shared.leases}
    swaps = {lease.op: lease.swap_s for lease in shared.leases if lease.swap_s}
    passes: dict[int, list[LeaseRecord]] = {}
    for lease in sorted(own.leases, key=lambda lease: lease.started_s):
        passes.setdefault(lease.iteration, []).append(lease)
    tape = tuple(
        _row(leases, passes.get(iteration + 1, [])[:1]) for iteration, leases in passes.items()
    )
    ops = tuple(
        SimOp(lease.op, 1.0, 0.0, (places[lease.op],), swap_s=swaps.get(lease.op, 0.0))
        for lease in next(iter(passes.values()))
    )
    return SimJob(own.status.name, ops, iterations=len(tape), tape=tape)


def _row(
    leases: Sequence[LeaseRecord], after: Sequence[LeaseRecord]
) -> tuple[tuple[int, int], ...]:
    """Ticks of the leases of one iteration, and of the waits after them."""
    following = [*leases[1:], *after]
    ends = [lease.ended_s for lease in leases]
    waits = [max(b.ready_s - end, 0.0) for end, b in zip(ends, following, strict=False)]
    # Nothing follows the job's last lease.
    waits += [0.0] * (len(leases) - len(waits))
    return tuple(
        (max(round(TICKS_PER_S * lease.busy_s), 1), round(TICKS_PER_S * wait))
        for lease, wait in zip(leases, waits, strict=True)
    )


def _come_and_go(make: MakeJob, iterations: int, progress: Progress) -> dict[str, float]:
    """A job arrives and others leave in the middle: jobs moved as plans say, and left alone."""
    figures: dict[str, float] = {}
    spans: dict[bool, float] = {}
    for is_rearranging in (False, True):
        how = "moved as plans say" if is_rearranging else "left where they are"
        progress(f"two groups: jobs come and go, {how}")
        with _cluster(is_rearranging=is_rearranging) as cluster:
            _warm_groups(cluster, make)
            spans[is_rearranging] = _makespan_s(_staggered(cluster, make, iterations))
            figures["replans_adopted"] = float(cluster.status().plan.num_moves)
    figures["makespan_s_frozen"] = spans[False]
    figures["makespan_s_replanned"] = spans[True]
    figures["saving_against_frozen_plan"] = 1 - spans[True] / spans[False]
    return figures


def _staggered(cluster: plexrl.LocalCluster, make: MakeJob, iterations: int) -> list[Ran]:
    """Two short jobs and a long one; another long one comes later, beside the first."""
    lengths = {"short-0": iterations // 2, "long-1": iterations, "short-2": iterations // 2}
    jobs = [
        make(name, number, length, CROWDED_DELAY_S)
        for number, (name, length) in enumerate(lengths.items())
    ]
    runs = [cluster.submit(job) for job in jobs]
    deadline_s = time.monotonic() + TIMEOUT_S
    while (status := runs[0].status()).iteration < iterations // 4:
        if status.state.is_terminal or time.monotonic() > deadline_s:
            raise RuntimeError(f"{status.name} is {status.state} at {status.iteration} iterations")
        time.sleep(0.1)
    runs.append(cluster.submit(make("late-3", 3, iterations, CROWDED_DELAY_S)))
    return _ran(cluster, [run.result(TIMEOUT_S) for run in runs])


@contextmanager
def _cluster(*, is_rearranging: bool = True) -> Iterator[plexrl.LocalCluster]:
    planning = plexrl.PlanningConfig(period_s=3.0, is_rearranging=is_rearranging)
    with (
        tempfile.TemporaryDirectory() as store,
        plexrl.LocalCluster(groups=len(GROUPS), store=store, planning=planning) as cluster,
    ):
        yield cluster


def _warm_groups(cluster: plexrl.LocalCluster, make: MakeJob) -> None:
    """Start the engine that trains on each group: the steady part begins after it."""
    warm = [make(f"warm-{group}", 0, 2, 0.0) for group in GROUPS]
    places = zip(warm, GROUPS, strict=True)
    _run(cluster, [replace(job, groups={"train": group}) for job, group in places])


def _run(cluster: plexrl.LocalCluster, jobs: Sequence[JobSpec]) -> list[Ran]:
    runs = [cluster.submit(job) for job in jobs]
    return _ran(cluster, [run.result(TIMEOUT_S) for run in runs])


def _ran(cluster: plexrl.LocalCluster, statuses: Sequence[JobStatus]) -> list[Ran]:
    leases = [lease for lease in cluster.trace().leases if lease.iteration >= 0]
    return [
        Ran(status, tuple(lease for lease in leases if lease.job == status.name))
        for status in statuses
    ]


def _makespan_s(runs: Sequence[Ran]) -> float:
    ends = [run.status.ended_s for run in runs if run.status.ended_s is not None]
    return max(ends) - min(run.status.started_s for run in runs)


def _engine_starts(cluster: plexrl.LocalCluster) -> int:
    return sum(group.num_engine_starts for group in cluster.status().groups)
