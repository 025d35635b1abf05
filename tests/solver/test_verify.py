from dataclasses import replace

import pytest

import solver
from solver.plan import Timeline, Timing
from solver.problem import Group, Problem
from solver.timeline import plan_of
from solver.verify import verify
from tests.solver.instances import contested, job, one_group, three_loops


def _edited(plan, at, **change):
    """The plan with one timing of its first timeline changed."""
    first, *rest = plan.timelines
    timings = list(first.timings)
    timings[at] = replace(timings[at], **change)
    return replace(plan, timelines=(replace(first, timings=tuple(timings)), *rest))


def _two_groups():
    groups = (Group("g", 20), Group("h", 20, price=2))
    return Problem(groups, three_loops())


PLANS = [one_group(*three_loops()), one_group(*contested()), _two_groups()]


@pytest.mark.parametrize("problem", PLANS)
def test_a_greedy_plan_is_valid(problem):
    assert verify(problem, solver.greedy(problem)).violations == ()


@pytest.mark.parametrize("problem", PLANS)
def test_every_op_that_starts_too_early_is_caught(problem):
    """In a plan without slack an op moved onto its predecessor's end less one must clash."""
    plan = solver.greedy(problem)
    ordered = plan.timelines[0].timings
    for at in range(1, len(ordered)):
        before = ordered[at - 1]
        clash = before.start_ticks + _duration(problem, before) - 1
        assert not verify(problem, _edited(plan, at, start_ticks=clash)).is_valid


def _duration(problem, timing):
    return next(o.duration_ticks for o in problem.job(timing.job).ops if o.name == timing.op)


@pytest.mark.parametrize("problem", PLANS)
@pytest.mark.parametrize("change", [1, -1, 2])
def test_every_wrong_wrap_is_caught(problem, change):
    plan = solver.greedy(problem)
    for at, timing in enumerate(plan.timelines[0].timings):
        broken = _edited(plan, at, wraps=timing.wraps + change)
        if len(problem.job(timing.job).ops) > 1 or change:
            assert not verify(problem, broken).is_valid


@pytest.mark.parametrize("problem", PLANS)
def test_every_op_left_out_or_served_twice_is_caught(problem):
    plan = solver.greedy(problem)
    first, *rest = plan.timelines
    for at, timing in enumerate(first.timings):
        without = first.timings[:at] + first.timings[at + 1 :]
        twice = (*first.timings, replace(timing, start_ticks=timing.start_ticks + 1))
        for timings in (without, twice):
            broken = replace(plan, timelines=(replace(first, timings=timings), *rest))
            assert not verify(problem, broken).is_valid


@pytest.mark.parametrize("problem", PLANS)
def test_a_cycle_of_another_length_is_caught(problem):
    plan = solver.greedy(problem)
    first, *rest = plan.timelines
    for cycle in (first.cycle_ticks - 1, first.cycle_ticks + 1, 1):
        broken = replace(plan, timelines=(replace(first, cycle_ticks=cycle), *rest))
        assert not verify(problem, broken).is_valid


@pytest.mark.parametrize("problem", PLANS)
def test_false_promises_are_caught(problem):
    plan = solver.greedy(problem)
    assert not verify(problem, replace(plan, objective_ticks=plan.objective_ticks - 1)).is_valid
    for job_id, slowdown in plan.slowdowns_permille.items():
        for wrong in ({job_id: slowdown - 1}, {job_id: slowdown + 1}, {"zoe": 1000}):
            broken = replace(plan, slowdowns_permille={**plan.slowdowns_permille, **wrong})
            assert not verify(problem, broken).is_valid


@pytest.mark.parametrize("problem", PLANS)
def test_every_false_placement_is_caught(problem):
    plan = solver.greedy(problem)
    for job_id, group in plan.placement.items():
        others = {g.id for g in problem.groups} - {group}
        for wrong in [*others, "nowhere"]:
            broken = replace(plan, placement={**plan.placement, job_id: wrong})
            assert not verify(problem, broken).is_valid
        fewer = {other: at for other, at in plan.placement.items() if other != job_id}
        assert not verify(problem, replace(plan, placement=fewer)).is_valid
    assert not verify(problem, replace(plan, placement={**plan.placement, "zoe": "g"})).is_valid


@pytest.mark.parametrize(
    "change",
    [
        {"memory_bytes": 99},
        {"slowdown_limit_permille": 1000},
        {"forbids": ("tool",)},
        {"pinned_group": "h"},
        {"pool": "big"},
    ],
)
def test_a_requirement_that_the_plan_breaks_is_caught(change):
    groups = (Group("g", 100), Group("h", 100, "big"))
    jobs = three_loops()
    pinned = tuple(replace(j, pinned_group="g") for j in jobs)
    plan = solver.greedy(Problem(groups, pinned))
    broken = Problem(groups, (replace(jobs[0], **change), *jobs[1:]))
    assert verify(Problem(groups, jobs), plan).is_valid
    assert not verify(broken, plan).is_valid


def test_too_many_jobs_on_a_group_are_caught():
    plan = solver.greedy(one_group(*three_loops()))
    assert not verify(one_group(*three_loops(), max_jobs=2), plan).is_valid


def test_a_start_outside_the_cycle_is_caught():
    problem = one_group(*three_loops())
    plan = solver.greedy(problem)
    last = len(plan.timelines[0].timings) - 1
    beyond = plan.timelines[0].timings[last].start_ticks + plan.timelines[0].cycle_ticks
    assert not verify(problem, _edited(plan, last, start_ticks=beyond)).is_valid
    assert not verify(problem, _edited(plan, 0, start_ticks=-1)).is_valid


def _two_jobs_meeting(gap, switch):
    """Two ops of different jobs round the wrap, `gap` ticks before the first of them."""
    problem = one_group(job("a", (10, 0, switch)), job("b", (10, 0, switch)))
    cycle = 20 + 2 * gap
    timings = (Timing("a", "op0", 0, 0), Timing("b", "op0", 10 + gap, 0))
    return problem, plan_of(problem, [Timeline("g", cycle, timings)])


def test_a_switch_must_fit_before_an_op_round_the_wrap_too():
    assert verify(*_two_jobs_meeting(gap=3, switch=3)).is_valid
    found = verify(*_two_jobs_meeting(gap=2, switch=3))
    assert len(found.violations) == 2


def test_no_switch_is_asked_between_ops_of_one_job():
    problem = one_group(job("a", (10, 0, 5), (10, 0, 5)))
    timings = (Timing("a", "op0", 0, 0), Timing("a", "op1", 10, 0))
    assert verify(problem, plan_of(problem, [Timeline("g", 20, timings)])).is_valid
