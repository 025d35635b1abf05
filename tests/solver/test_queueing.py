"""The quick look agrees with the simulator of the arbiter."""

from __future__ import annotations

from dataclasses import replace

import pytest

from solver.arrangements import make_cell
from solver.dispatch.rules import FirstReady
from solver.dispatch.shortest import ShortestFirst
from solver.policies import keep_group
from solver.queueing import Turn, queue_ends
from solver.simulate import Handoff, simulate
from solver.trace import Outcome
from solver.workloads import Phase, Role
from tests.solver.sharing import COLOCATED, POOL, SPLIT, loop

JOBS = [loop("a", 60, 30, 20), loop("b", 50, 40, 30), loop("c", 90, 30, 40)]


@pytest.mark.parametrize("market", [COLOCATED, SPLIT, POOL, replace(SPLIT, staleness=1)])
def test_first_ready_takes_the_same_time_as_under_the_arbiter(market):
    compiled = make_cell(market, JOBS).compile(1, 4000.0)
    quick = queue_ends(compiled, 4000.0)
    slow = simulate(compiled, None, FirstReady(), handoff=Handoff(0, 0), until_s=4000.0)
    for job, ends in zip(compiled, quick, strict=True):
        assert len(ends) == pytest.approx(slow.iterations[job.name], abs=1)
        assert ends[-1] == pytest.approx(slow.finished_ticks[job.name], rel=0.03)


def test_a_job_alone_takes_its_time_alone():
    (job,) = make_cell(COLOCATED, [loop("a")]).compile(0, 500.0)
    assert queue_ends([job], None)[0] == job.alone_ends(0)


def test_shortest_first_over_pooled_groups_takes_about_the_time_it_takes_under_the_arbiter():
    market = replace(SPLIT, max_seats=2)
    jobs = [replace(loop(f"j{i}", 40 + i, 60 - i, cv=0.2), train_copy_s=90.0) for i in range(5)]
    compiled = make_cell(market, jobs, num_rollout=2, num_train=2).compile(1, 20_000.0)
    assert all(op.is_any for job in compiled for op in job.ops)
    tolerances = [0.4] * len(jobs)
    quick = queue_ends(compiled, 20_000.0, turn=Turn.SHORTEST_FIRST, tolerances=tolerances)
    rule = ShortestFirst({job.name: 0.4 for job in jobs})
    slow = simulate(compiled, None, rule, until_s=20_000.0)
    work = [
        sum(
            len(ends) / job.alone_ends(0)[len(ends) - 1]
            for job, ends in zip(compiled, found, strict=True)
        )
        for found in (quick, [slow.ends_ticks[job.name] for job in jobs])
    ]
    assert work[0] == pytest.approx(work[1], rel=0.02)
    for job, ends in zip(compiled, quick, strict=True):
        assert ends[-1] / len(ends) == pytest.approx(
            slow.finished_ticks[job.name] / slow.iterations[job.name], rel=0.05
        )


def test_a_job_that_goes_on_elsewhere_waits_for_its_state():
    market = replace(SPLIT, max_seats=2)

    def ends(copy_s):
        jobs = [replace(loop(f"j{i}", 5, 60, cv=0.2), train_copy_s=copy_s) for i in range(3)]
        compiled = make_cell(market, jobs, num_rollout=2, num_train=2).compile(1, 5000.0)
        done = simulate(compiled, None, FirstReady(), until_s=5000.0)
        return sum(done.iterations.values()), sum(map(len, queue_ends(compiled, 5000.0)))

    assert ends(0.0)[0] > ends(100.0)[0]
    assert ends(100.0)[0] == pytest.approx(ends(100.0)[1], rel=0.03)


def test_keeping_the_group_takes_about_the_time_it_takes_under_the_arbiter():
    jobs = [loop(f"j{i}", 60, 20, 0) for i in range(2)]
    phases = (*jobs[0].phases, Phase("more", Role.TRAIN, 20.0, 0.1))
    cell = make_cell(POOL, [replace(job, phases=phases) for job in jobs])
    compiled = cell.compile(1, 5000.0)
    plan, rule = keep_group(cell)
    slow = simulate(compiled, plan, rule, until_s=5000.0)
    for job, ends in zip(compiled, queue_ends(compiled, 5000.0, is_kept=True), strict=True):
        assert ends[-1] / len(ends) == pytest.approx(
            slow.finished_ticks[job.name] / slow.iterations[job.name], rel=0.03
        )


@pytest.mark.parametrize("market", [COLOCATED, SPLIT, replace(SPLIT, max_seats=2)])
def test_with_yields_it_takes_about_the_time_it_takes_under_the_arbiter(market):
    market = replace(market, is_yielding=True)
    jobs = [loop(f"j{i}", 20 + 60 * i, 10 + 10 * i, cv=0.4) for i in range(4)]
    num = 1 if market.max_seats == 1 else 2
    compiled = make_cell(market, jobs, num_rollout=num, num_train=num).compile(1, 40_000.0)
    slow = simulate(compiled, None, FirstReady(), until_s=40_000.0)
    assert any(record.outcome is Outcome.YIELDED for record in slow.records)
    for job, ends in zip(compiled, queue_ends(compiled, 40_000.0), strict=True):
        assert ends[-1] / len(ends) == pytest.approx(
            slow.finished_ticks[job.name] / slow.iterations[job.name], rel=0.05
        )
