"""The order of a plan, served by lengths that have changed."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import solver
from solver.errors import PlanError
from solver.linked import joined
from solver.retime import retime
from tests.solver.test_linked import linked, linked_problems, spread


def problem(factor=1.0, limit=10_000):
    def op(name, duration, wait):
        return solver.Op(name, max(1, round(duration * factor)), round(wait * factor), 5)

    return solver.Problem(
        groups=(solver.Group("g", 100), solver.Group("h", 100)),
        jobs=(
            solver.Job("a", (op("rollout", 100, 40), op("train", 60, 10)), 1, limit),
            solver.Job("b", (op("rollout", 30, 300), op("train", 20, 0)), 1, limit),
            solver.Job("c", (op("rollout", 50, 0),), 1, limit),
        ),
    )


def made(of):
    plan = solver.greedy(of)
    assert solver.verify(of, plan).is_valid
    return plan


@given(st.floats(0.2, 5.0))
def test_a_retimed_plan_is_valid_and_keeps_placement_and_order(factor):
    plan = made(problem())
    changed = problem(factor)
    again = retime(changed, plan)
    assert solver.verify(changed, again).is_valid
    assert again.orders == plan.orders
    assert again.placement == plan.placement


def test_unchanged_lengths_never_make_the_cycle_longer():
    plan = made(problem())
    again = retime(problem(), plan)
    assert again.objective_ticks <= plan.objective_ticks


def test_a_job_alone_takes_what_it_takes_alone():
    alone = solver.Problem(problem().groups, problem().jobs[1:2])
    again = retime(alone, made(alone))
    assert again.timelines[0].cycle_ticks == alone.jobs[0].alone_ticks


def test_other_ops_are_refused():
    plan = made(problem())
    (a, *others) = problem().jobs
    other = replace(problem(), jobs=(replace(a, ops=(a.ops[0],)), *others))
    with pytest.raises(PlanError, match="plan anew"):
        retime(other, plan)


def turned(order, first):
    at = order.index(first)
    return (*order[at:], *order[:at])


@pytest.mark.slow
@given(linked_problems(), linked_problems())
@settings(max_examples=100)
def test_groups_of_one_cycle_are_retimed_together(one, other):
    plan = made(one)
    lengths = [op for job in other.jobs for op in job.ops]
    jobs = [
        replace(
            job,
            ops=tuple(
                replace(lengths.pop(), name=op.name, group=op.group, also=op.also) for op in job.ops
            ),
        )
        for job in one.jobs
    ]
    changed = replace(one, jobs=tuple(jobs))
    again = retime(changed, plan)
    assert solver.verify(changed, again).violations == ()
    for group, order in plan.orders.items():
        assert turned(again.orders[group], order[0]) == order
    assert joined(retime(one, plan).timelines).cycle_ticks <= joined(plan.timelines).cycle_ticks


def test_what_runs_ahead_keeps_doing_so():
    job = spread("a", ("h", 50, 10, 0), ("g", 40, 0, 0), ahead=1, staleness=1)
    slower = replace(job, ops=(replace(job.ops[0], duration_ticks=80), job.ops[1]))
    again = retime(linked(slower), made(linked(job)))
    assert {line.cycle_ticks for line in again.timelines} == {slower.alone_ticks} == {90}


def test_ops_on_another_group_are_refused():
    here, there = ("h", 50, 10, 0), ("g", 40, 0, 0)
    plan = made(linked(spread("a", here, there), spread("b", here, there)))
    other = linked(spread("a", here, there), spread("b", there, there, here))
    with pytest.raises(PlanError, match="plan anew"):
        retime(other, plan)
    moved = linked(spread("a", here, there), spread("b", there, here))
    with pytest.raises(PlanError, match=r"'b' is served on [gh], and runs on [gh]"):
        retime(moved, plan)
