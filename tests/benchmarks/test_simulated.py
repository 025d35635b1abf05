"""The simulated cluster: turned time, the same draws for runtime and simulator, honest figures."""

import asyncio
import logging
from dataclasses import replace

import pytest

from benchmarks.scenarios.scale import PLANNING, _idle_with_ready
from benchmarks.simulated.cluster import SimulatedCluster
from benchmarks.simulated.fleet import Drawn
from benchmarks.simulated.shapes import percentile
from benchmarks.simulated.stopwatch import Stopwatch
from benchmarks.simulated.timewarp import TimeWarpLoop
from dataflow.checking import check_job
from solver.dispatch.events import TICKS_PER_S
from solver.dispatch.rules import PlanOrderWithBackfill
from solver.simulate import Handoff, simulate
from solver.trace import LeaseRecord, Outcome


def lease(group, ready_s, started_s, ended_s):
    where = ("id", "job", "actor", "actor.rollout.0", 0, 0, group)
    return LeaseRecord(*where, ready_s, started_s, ended_s, 0.0, "device", 0, Outcome.DONE)


def test_an_hour_passes_at_once_and_threads_run_in_turn():
    loop = TimeWarpLoop()

    async def act():
        order = []

        async def note(seconds):
            await asyncio.sleep(seconds)
            order.append(seconds)

        await asyncio.gather(
            note(3600.0), note(1.0), loop.run_in_executor(None, order.append, "thread")
        )
        return order, loop.time()

    order, now_s = loop.run_until_complete(act())
    loop.close()
    assert order == ["thread", 1.0, 3600.0]
    assert now_s == pytest.approx(3600.0)


def test_a_loop_with_nothing_left_to_do_says_so():
    loop = TimeWarpLoop()
    with pytest.raises(RuntimeError, match="nothing is left"):
        loop.run_until_complete(loop.create_future())
    loop.close()


def test_a_shape_is_the_same_job_for_runtime_and_simulator():
    for job in Drawn(num_jobs=4, span_s=3000.0, seed=0, compression=10.0).jobs():
        ops = [op.op for op in check_job(job.spec())]
        assert ops == [op.name for op in job.sim_job("g").ops]
        alone_s = job.sim_job("g").alone_ticks(0) / TICKS_PER_S
        assert alone_s == pytest.approx(job.iterations * job.workload.mean_s / 10.0, rel=0.5)


def test_idle_time_counts_only_while_something_waits_and_nothing_runs():
    leases = [
        lease("g", 0.0, 1.0, 3.0),  # 1 s idle with ready
        lease("g", 2.0, 3.5, 5.0),  # 0.5 s
        lease("g", 8.0, 8.0, 9.0),  # free from 5 to 8, but nothing was ready
        lease("h", 0.0, 0.0, 2.0),
    ]
    assert _idle_with_ready(leases) == pytest.approx((1.5, 11.0))


def test_the_stopwatch_gives_nested_time_to_the_innermost():
    class Clerk:
        def outer(self):
            spin(20_000)
            self.inner()

        def inner(self):
            spin(200_000)

    def spin(times):
        for _ in range(times):
            pass

    clerk, stopwatch = Clerk(), Stopwatch()
    stopwatch.watch(clerk, "outer", "plugin")
    stopwatch.watch(clerk, "inner", "dask")
    clerk.outer()
    seconds = stopwatch.reading()
    assert seconds["dask"] > seconds["plugin"] > 0


@pytest.mark.slow
def test_the_simulator_predicts_the_runtime(tmp_path):
    """With the same draws, arrivals and plans, and no latency, both do the same."""
    logging.getLogger("distributed").setLevel(logging.ERROR)
    jobs = Drawn(num_jobs=8, span_s=2400.0, seed=0, compression=1.0).jobs()
    planning = replace(PLANNING, budget_s=0.0, period_s=1e6)
    loop = TimeWarpLoop()
    cluster = SimulatedCluster(jobs, str(tmp_path), planning, loop.time)
    loop.run_until_complete(_run(cluster))
    entries = {job.name: cluster.coordinator.jobs[job.name] for job in jobs}
    adopted = cluster.coordinator.planner.chronicle.adopted()
    loop.run_until_complete(cluster.close())
    loop.close()
    assert len(adopted) > 1
    began_s = {name: entry.iterations.first.started_s for name, entry in entries.items()}
    first_s = min(began_s.values())
    predicted = simulate(
        [
            replace(
                job.sim_job(entries[job.name].placement.home), arrives_s=began_s[job.name] - first_s
            )
            for job in jobs
        ],
        rule=PlanOrderWithBackfill(slack=planning.slack, overdue=planning.overdue),
        handoff=Handoff(0, 0),
        later_plans=[(max(at_s - first_s, 0.0), plan) for at_s, plan in adopted],
        is_learning=True,
    )
    shared_s = {n: e.iterations.last.ended_s - began_s[n] for n, e in entries.items()}
    errors = [
        abs(predicted.finished_ticks[name] / TICKS_PER_S / seconds - 1)
        for name, seconds in shared_s.items()
    ]
    assert percentile(errors, 0.95) < 0.01
    assert max(predicted.slowdowns.values()) > 1.1


async def _run(cluster):
    await cluster.start()
    for index in range(4):
        await cluster.add_group(f"group-{index}")
    await cluster.add_host("cpu-0")
    for name in cluster.jobs:
        await cluster.submit(name)
    while not all(cluster.coordinator.jobs[n].state.is_terminal for n in cluster.jobs):  # noqa: ASYNC110
        await asyncio.sleep(50.0)
