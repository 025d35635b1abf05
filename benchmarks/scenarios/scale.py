"""A real Dask scheduler under load: 256 groups, 512 jobs of published shapes, time compressed.

The scheduler and its plugin run in this process; simulated services, and hosts with the real
drivers, in two others. Only what runs inside a lease is simulated (`benchmarks.simulated`).

The simulator is given the same jobs, draws, arrivals and plans, and predicts each job's slowdown.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

from distributed import Scheduler

from benchmarks.contract import BenchmarkResult, Progress
from benchmarks.simulated.cluster import start_scheduler
from benchmarks.simulated.fleet import Drawn, Fleet, running
from benchmarks.simulated.pulse import Late, Pulse
from benchmarks.simulated.shapes import percentile
from benchmarks.simulated.stopwatch import PLUGIN, Stopwatch, watch_plugin
from plexrl.clock import system_clock
from plexrl.planning.config import PlanningConfig
from plexrl.runtime import messages
from plexrl.runtime.coordinator import Coordinator
from plexrl.runtime.messages import pack
from plexrl.runtime.view import ClusterView
from solver.dispatch.events import TICKS_PER_S, DispatchPlan
from solver.dispatch.rules import PlanOrderWithBackfill
from solver.simulate import simulate
from solver.trace import LeaseRecord

SEED = 0
TIMEOUT_S = 900.0
POLL_S = 0.25
PROGRESS_S = 5.0
PLANNING = PlanningConfig(max_jobs=4)
JOBS_PER_GROUP = 2
NUM_HOSTS = 2


@dataclass(frozen=True, slots=True)
class Size:
    """One cluster to measure."""

    num_groups: int
    span_s: float
    """`benchmarks.simulated.fleet.Drawn.span_s`."""
    compression: float

    def drawn(self) -> Drawn:
        """Its jobs."""
        num_jobs = JOBS_PER_GROUP * self.num_groups
        return Drawn(num_jobs, self.span_s, SEED, self.compression)


@dataclass(frozen=True, slots=True)
class Observed:
    """What a scheduler went through from the first lease to the end of the last job."""

    size: Size
    leases: tuple[LeaseRecord, ...]
    began_s: Mapping[str, float]
    """Job → when its first function was ready, in seconds of the cluster's clock: what precedes
    it (attach, driver) takes real time, that the compression would stretch."""
    ended_s: Mapping[str, float]
    placement: Mapping[str, str]
    plans: tuple[tuple[float, DispatchPlan], ...]
    """When which plan came into force."""
    kept_idle_s: float
    """Group-seconds idle on purpose although functions waited."""
    plugin_s: float
    """Processor seconds of the plugin."""
    scheduler_s: float
    """Processor seconds of the scheduler's thread."""
    process_s: float
    """Processor seconds of its process: solves are prepared and checked there, in a thread."""
    wall_s: float
    num_plans: int
    num_errors: int
    late: Late
    """How late the scheduler's event loop was."""


def run(quick: bool, progress: Progress) -> BenchmarkResult:
    """Measure a small and a large cluster.

    The large one's compression keeps Dask's own cost of a function (`dask_ms_per_function`) far
    below its length (`mean_lease_ms`); the small one's gives it about as many functions a second.
    """
    small, large = Size(32, 3000.0, 96.0), Size(256, 3000.0, 12.0)
    if quick:
        small, large = Size(8, 2400.0, 240.0), Size(32, 2400.0, 60.0)
    seen = [_observe(size, progress) for size in (small, large)]
    figures = _figures(seen[1])
    per_function = [1e6 * found.plugin_s / len(found.leases) for found in seen]
    figures["plugin_us_per_function"] = per_function[1]
    figures["plugin_us_per_function_small"] = per_function[0]
    growth = f"plugin_growth_{small.num_groups}_to_{large.num_groups}"
    figures[growth] = per_function[1] / per_function[0]
    return BenchmarkResult("scale", figures, {}, SEED)


def _observe(size: Size, progress: Progress) -> Observed:
    logging.getLogger("distributed").setLevel(logging.ERROR)
    logging.getLogger("plexrl").setLevel(logging.ERROR)
    with tempfile.TemporaryDirectory() as store:
        return asyncio.run(_run_cluster(size, store, progress))


async def _run_cluster(size: Size, store: str, progress: Progress) -> Observed:
    stopwatch = Stopwatch()
    scheduler = await start_scheduler(
        "tcp",
        PLANNING,
        system_clock,
        prepare=lambda plugin, dask: watch_plugin(stopwatch, plugin, dask),
    )
    drawn = size.drawn()
    groups = tuple(f"group-{index}" for index in range(size.num_groups))
    hosts = tuple(f"cpu-{index}" for index in range(NUM_HOSTS))
    fleets = (
        Fleet(scheduler.address, drawn, groups=groups),
        Fleet(scheduler.address, drawn, hosts=hosts, store=store),
    )
    with ExitStack() as stack:
        processes = [stack.enter_context(running(fleet)) for fleet in fleets]
        while len(scheduler.workers) < size.num_groups + NUM_HOSTS:  # noqa: ASYNC110
            await asyncio.sleep(POLL_S)

        def check() -> None:
            if any(process.poll() is not None for process in processes):
                raise RuntimeError("a process of simulated workers ended before the jobs did")

        observed = await _run_jobs(scheduler, size, stopwatch, progress, check)
        await scheduler.close()
    return observed


async def _run_jobs(
    scheduler: Scheduler,
    size: Size,
    stopwatch: Stopwatch,
    progress: Progress,
    check: Callable[[], None],
) -> Observed:
    view: ClusterView = scheduler.plugins["plexrl"].view
    jobs = view.coordinator.jobs
    names = [job.name for job in size.drawn().jobs()]
    num_iterations = sum(job.iterations for job in size.drawn().jobs())
    pulse = Pulse()
    beating = asyncio.create_task(pulse.beat())
    began_s, process_s, before_s = time.monotonic(), time.process_time(), stopwatch.reading()
    placement = await _submit(scheduler, size, view.coordinator)
    while left := [name for name in names if not jobs[name].state.is_terminal]:
        if time.monotonic() - began_s > TIMEOUT_S:
            raise TimeoutError(f"{len(left)} jobs did not end in {TIMEOUT_S:g} s: {left[:5]}")
        check()
        done = sum(jobs[name].num_committed for name in names)
        progress(f"{size.num_groups} groups: {done} of {num_iterations} iterations")
        await asyncio.sleep(PROGRESS_S)
    spent_s = stopwatch.reading() - before_s
    beating.cancel()
    return Observed(
        size=size,
        placement=placement,
        plugin_s=spent_s[PLUGIN],
        scheduler_s=spent_s.total(),
        process_s=time.process_time() - process_s,
        wall_s=time.monotonic() - began_s,
        num_errors=view.num_errors(),
        late=pulse.late_s(_solves(view)),
        **_told(view.coordinator, names),
    )


async def _submit(scheduler: Scheduler, size: Size, coordinator: Coordinator) -> dict[str, str]:
    """Hand in all jobs; job → group."""
    placement = {}
    for job in size.drawn().jobs():
        await scheduler.handlers[messages.SUBMIT](payload=pack(job.submission()))
        placement[job.name] = coordinator.jobs[job.name].placement.home
        await asyncio.sleep(0)
    return placement


def _told(coordinator: Coordinator, names: Sequence[str]) -> dict[str, Any]:
    """What the scheduler side knows once all jobs have ended."""
    entries = {name: coordinator.jobs[name] for name in names}
    failed = {name: entry.error for name, entry in entries.items() if entry.error}
    if failed:
        raise RuntimeError(f"jobs failed: {failed}")
    leases = tuple(lease for lease in coordinator.ledger.leases() if lease.iteration >= 0)
    began_s: dict[str, float] = {}
    for lease in sorted(leases, key=lambda lease: lease.ready_s):
        began_s.setdefault(lease.job, lease.ready_s)
    return {
        "leases": leases,
        "began_s": began_s,
        "ended_s": {
            name: last.ended_s
            for name, entry in entries.items()
            if (last := entry.iterations.last) is not None
        },
        "plans": coordinator.planner.chronicle.adopted(),
        "kept_idle_s": sum(coordinator.arbiter.kept_idle_ticks.values()) / TICKS_PER_S,
        "num_plans": coordinator.planner.status().num_solves,
    }


def _solves(view: ClusterView) -> list[tuple[float, float]]:
    """When solves were asked for and adopted, on the system clock."""
    epoch_s = view.coordinator.epoch_s
    return [
        (epoch_s + solve.proposal.request.now_s, epoch_s + solve.adopted_s)
        for solve in view.coordinator.planner.chronicle.solves
    ]


def _figures(seen: Observed) -> dict[str, float]:
    idle_s, group_s = _idle_with_ready(seen.leases)
    unintended_s = max(idle_s - seen.kept_idle_s, 0.0)
    errors = _prediction_errors(seen)
    waits_ms = [1000 * gap_s for gap_s in _handoffs_s(seen.leases)]
    dask_s = seen.scheduler_s - seen.plugin_s
    return {
        "num_groups": seen.size.num_groups,
        "num_jobs": len(seen.placement),
        "num_functions": len(seen.leases),
        "time_compression": seen.size.compression,
        "functions_per_s": len(seen.leases) / seen.wall_s,
        "idle_with_ready_fraction": unintended_s / group_s,
        "idle_with_ready_total_fraction": idle_s / group_s,
        "handoff_ms_p50": statistics.median(waits_ms),
        "scheduler_core_fraction": seen.scheduler_s / seen.wall_s,
        "scheduler_process_core_fraction": seen.process_s / seen.wall_s,
        "scheduler_us_per_function": 1e6 * seen.scheduler_s / len(seen.leases),
        "dask_ms_per_function": 1e3 * dask_s / len(seen.leases),
        "mean_lease_ms": 1e3 * statistics.fmean(lease.held_s for lease in seen.leases),
        "loop_late_ms_p99": 1e3 * percentile(seen.late.otherwise_s, 0.99),
        "loop_late_ms_p99_while_planning": 1e3 * percentile(seen.late.planning_s, 0.99),
        "slowdown_prediction_error": percentile(errors, 0.95),
        "slowdown_prediction_error_p50": statistics.median(errors),
        "num_plans": seen.num_plans,
        "plugin_errors": seen.num_errors,
        "load_average": os.getloadavg()[0],
    }


def _by_group(leases: Sequence[LeaseRecord]) -> Mapping[str, list[LeaseRecord]]:
    found: dict[str, list[LeaseRecord]] = defaultdict(list)
    for lease in sorted(leases, key=lambda lease: lease.started_s):
        found[lease.group].append(lease)
    return found


def _idle_with_ready(leases: Sequence[LeaseRecord]) -> tuple[float, float]:
    """Group-seconds that groups stood idle while one of their functions was ready, and all."""
    idle_s = all_s = 0.0
    for lane in _by_group(leases).values():
        all_s += lane[-1].ended_s - lane[0].ready_s
        moments = [(lease.ready_s, 0, 1) for lease in lane]
        moments += [(lease.started_s, 1, 0) for lease in lane]
        moments += [(lease.ended_s, -1, 0) for lease in lane]
        idle_s += _idle_s(sorted(moments))
    return idle_s, all_s


def _idle_s(moments: Sequence[tuple[float, int, int]]) -> float:
    """Seconds with something waiting and nothing running.

    Parameters
    ----------
    moments
        ``(second, change of running, change of known to be ready)``, sorted; what starts is no
        longer waiting.
    """
    idle_s, running_now, waiting, since_s = 0.0, 0, 0, 0.0
    for at_s, change, is_ready in moments:
        if waiting and not running_now:
            idle_s += at_s - since_s
        running_now += change
        waiting += is_ready - (change > 0)
        since_s = at_s
    return idle_s


def _handoffs_s(leases: Sequence[LeaseRecord]) -> Iterator[float]:
    """Seconds between leases of a group where the later function was ready in time."""
    for lane in _by_group(leases).values():
        for before, after in itertools.pairwise(lane):
            if after.ready_s < before.ended_s:
                yield after.started_s - before.ended_s


def _prediction_errors(seen: Observed) -> list[float]:
    """Per job: relative error of its slowdown as the simulator predicts it."""
    first_s = min(seen.began_s.values())
    predicted = simulate(
        [
            replace(
                job.sim_job(seen.placement[job.name]), arrives_s=seen.began_s[job.name] - first_s
            )
            for job in seen.size.drawn().jobs()
        ],
        rule=PlanOrderWithBackfill(slack=PLANNING.slack, overdue=PLANNING.overdue),
        later_plans=[(max(at_s - first_s, 0.0), plan) for at_s, plan in seen.plans],
        is_learning=True,
    )
    return [
        abs(predicted.slowdowns[name] / _slowdown(seen, name, alone_ticks) - 1)
        for name, alone_ticks in predicted.alone_ticks.items()
    ]


def _slowdown(seen: Observed, job: str, alone_ticks: int) -> float:
    return (seen.ended_s[job] - seen.began_s[job]) / (alone_ticks / TICKS_PER_S)
