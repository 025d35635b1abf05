from itertools import pairwise

import pytest
from hypothesis import given, settings

from solver.bounds import cycle_floor_ticks
from solver.errors import PlanError
from solver.timeline import greedy_timeline, plan_of
from solver.verify import verify
from tests.solver.instances import (
    best_cycle,
    contested,
    job,
    jobs_of_one_group,
    one_group,
    three_loops,
)


def test_a_job_alone_takes_its_time_alone():
    assert greedy_timeline("g", [job("a", (10, 5, 3), (20, 7, 3))]).cycle_ticks == 42


def test_jobs_that_fit_into_each_others_waits_cost_nothing():
    jobs = [job("a", (10, 60, 1)), job("b", (20, 40, 1)), job("c", (5, 30, 1), (5, 30, 1))]
    assert greedy_timeline("g", jobs).cycle_ticks == cycle_floor_ticks(jobs) == 70


def test_ops_without_a_wait_between_them_stay_together():
    order = greedy_timeline("g", three_loops()).order
    doubled = order + order
    assert any(pair == (("math", "op0"), ("math", "op1")) for pair in pairwise(doubled))


@given(jobs_of_one_group(max_jobs=5, max_ops=4))
@settings(max_examples=25)
def test_every_timeline_is_valid(jobs):
    problem = one_group(*jobs)
    plan = plan_of(problem, [greedy_timeline("g", jobs)])
    assert verify(problem, plan).violations == ()


@given(jobs_of_one_group())
@settings(max_examples=20)
def test_a_timeline_is_never_shorter_than_the_best_nor_longer_than_one_after_the_other(jobs):
    cycle = greedy_timeline("g", jobs).cycle_ticks
    in_turn = sum(j.alone_ticks + sum(op.switch_ticks for op in j.ops) for j in jobs)
    assert best_cycle(jobs) <= cycle <= in_turn


def test_the_same_jobs_give_the_same_timeline():
    assert greedy_timeline("g", contested()) == greedy_timeline("g", contested())


def test_a_plan_of_timelines_that_leave_a_job_out_is_refused():
    problem = one_group(*three_loops())
    with pytest.raises(PlanError, match="'judge'"):
        plan_of(problem, [greedy_timeline("g", three_loops()[:2])])


def test_hundreds_of_ops_get_a_timeline_without_fitting():
    jobs = [job(f"j{i}", (3 + i % 5, 50, 1), (2, i % 9, 1)) for i in range(200)]
    problem = one_group(*jobs, memory=5000)
    assert verify(problem, plan_of(problem, [greedy_timeline("g", jobs)])).is_valid
