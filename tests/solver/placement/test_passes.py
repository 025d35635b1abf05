"""Jobs that pass their loop more than once in the cycle of their group."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import solver
from solver import Objective, Status
from solver.bounds import BoundClass
from solver.errors import SolverError
from solver.objective import value_of
from solver.placement.passes import pairs_apart, pass_counts, repeated_timeline
from solver.plan import Plan, Timeline
from solver.retime import retime
from solver.timeline import plan_of
from solver.verify import verify
from tests.solver.instances import job, jobs_of_one_group, one_group
from tests.solver.packings import pool, random_pool

LONG = job("long", (300, 700, 2), limit=1100)
SHORT = job("short", (60, 240, 2), limit=1150)
PAIR = one_group(LONG, SHORT)


def _every_count(jobs, most):
    """Whether some numbers of passes have a floor within the limits, by trying all of them."""
    switches = sum(min(op.switch_ticks for op in j.ops) for j in jobs) if len(jobs) > 1 else 0
    stack = [()]
    for _ in jobs:
        stack = [(*counts, count) for counts in stack for count in range(1, most + 1)]
    return any(
        max(
            switches + sum(j.busy_ticks * n for j, n in zip(jobs, counts, strict=True)),
            *(j.alone_ticks * n for j, n in zip(jobs, counts, strict=True)),
        )
        <= min(j.limit_ticks * n for j, n in zip(jobs, counts, strict=True))
        for counts in stack
    )


@given(jobs_of_one_group(max_jobs=3, max_ops=2), st.sampled_from([1000, 1100, 1400, 2000]))
@settings(max_examples=80)
def test_multiples_of_limits_miss_no_number_of_passes(jobs, limit):
    tight = [replace(j, slowdown_limit_permille=limit) for j in jobs]
    assert any(pass_counts(tight, 4)) == _every_count(tight, 4)


def test_a_short_job_passes_three_times_in_the_cycle_of_a_long_one():
    assert not any(counts == (1, 1) for counts in pass_counts((LONG, SHORT), 5))
    plan = plan_of(PAIR, [repeated_timeline("g", (LONG, SHORT), 5)])
    assert plan.timelines[0].passes == {"long": 1, "short": 3}
    assert plan.has_repeats
    assert verify(PAIR, plan).violations == ()
    assert plan.slowdowns_permille["short"] <= 1150
    assert Plan.from_json(plan.to_json()) == plan
    assert not pairs_apart(PAIR, 5)[0, 1]
    assert pairs_apart(PAIR, 1)[0, 1]


TWO_OPS = job("short", (30, 40, 2), (30, 200, 2), limit=1150)


def _mutations(line):
    first, *rest = line.timings
    yield "one op left out", (first, *rest[:-1])
    yield "one op twice", (*line.timings, line.timings[-1])
    for index, timing in enumerate(line.timings):
        others = line.timings[:index] + line.timings[index + 1 :]
        taken = others[index % len(others)].start_ticks
        yield "an op moved onto another", (replace(timing, start_ticks=taken), *others)
        yield "an op a cycle later", (replace(timing, wraps=timing.wraps + 1), *others)
        yield "an op a cycle earlier", (replace(timing, wraps=timing.wraps - 1), *others)


def test_every_change_of_a_timeline_of_several_passes_is_caught():
    problem = one_group(LONG, TWO_OPS)
    line = repeated_timeline("g", problem.jobs, 5)
    assert verify(problem, plan_of(problem, [line])).violations == ()
    assert line.passes == {"long": 1, "short": 3}
    for what, timings in _mutations(line):
        changed = plan_of(problem, [Timeline("g", line.cycle_ticks, timings)])
        assert not verify(problem, changed).is_valid, what


def test_a_cycle_too_short_for_all_passes_or_too_few_of_them_is_caught():
    line = repeated_timeline("g", (LONG, SHORT), 5)
    shorter = plan_of(PAIR, [replace(line, cycle_ticks=line.cycle_ticks - 100)])
    assert not verify(PAIR, shorter).is_valid
    once = [at for at in line.timings if at.job == "long" or at.wraps == 0]
    fewer = plan_of(PAIR, [Timeline("g", line.cycle_ticks, (once[0], once[1]))])
    assert any("its limit is 1150" in said for said in verify(PAIR, fewer).violations)


def test_an_order_of_several_passes_is_retimed_for_other_lengths():
    line = repeated_timeline("g", (LONG, SHORT), 5)
    slower = one_group(LONG, job("short", (70, 240, 2), limit=1400))
    again = retime(slower, plan_of(PAIR, [line]))
    assert again.timelines[0].passes == {"long": 1, "short": 3}
    assert verify(slower, again).violations == ()


@pytest.mark.slow
def test_repeated_passes_need_fewer_groups_and_are_bounded_by_universal_bounds_only():
    problem = pool(LONG, SHORT)
    common = solver.plan(problem, objective=Objective.GROUPS, budget_s=20.0)
    result = solver.plan(problem, objective=Objective.GROUPS, budget_s=20.0, most_passes=5)
    assert (common.status, common.value) == (Status.OPTIMAL, 2)
    assert (result.status, result.value) == (Status.OPTIMAL, 1)
    assert verify(problem, result.plan).violations == ()
    assert value_of(problem, result.plan, Objective.GROUPS) == 1
    assert result.bound_class is BoundClass.UNIVERSAL
    assert result.gap_in(BoundClass.COMMON_CYCLE) is None
    kept = solver.plan(problem, previous=result.plan, objective=Objective.GROUPS, budget_s=0.0)
    assert kept.plan.placement == result.plan.placement


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_more_passes_never_need_more_groups(seed):
    problem = random_pool(16, seed)
    few = solver.plan(problem, objective=Objective.GROUPS, budget_s=20.0)
    many = solver.plan(problem, objective=Objective.GROUPS, budget_s=20.0, most_passes=4)
    assert verify(problem, many.plan).violations == ()
    assert (
        few.value
        >= many.value
        >= max(bound.ticks for bound in many.bounds if bound.bound_class is BoundClass.UNIVERSAL)
    )


@pytest.mark.parametrize(
    ("passes", "objective", "said"),
    [(0, Objective.GROUPS, "from 1 to"), (3, Objective.ROUND, "groups and cost only")],
)
def test_passes_that_make_no_sense_are_refused(passes, objective, said):
    with pytest.raises(SolverError, match=said):
        solver.plan(PAIR, objective=objective, most_passes=passes)


def test_without_the_solver_a_group_is_emptied_where_passes_allow_it():
    problem = replace(PAIR, groups=(PAIR.groups[0], replace(PAIR.groups[0], id="h")))
    once = solver.plan(problem, objective=Objective.GROUPS, budget_s=0.0)
    often = solver.plan(problem, objective=Objective.GROUPS, budget_s=0.0, most_passes=5)
    assert (once.value, often.value) == (2, 1)
    assert often.plan.has_repeats
    apart = (replace(LONG, forbids=("short",)), SHORT)
    kept = solver.plan(
        replace(problem, jobs=apart), objective=Objective.GROUPS, budget_s=0.0, most_passes=5
    )
    assert kept.value == 2
