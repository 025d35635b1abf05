"""Jobs over several groups: these repeat one cycle together, in an order that is proven."""

from dataclasses import replace
from itertools import pairwise, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import solver
from solver.bounds import BoundClass, cycle_floor_ticks
from solver.cpsat.cyclic import Effort, Ending, shortest_cycle
from solver.errors import ProblemError, SolverError
from solver.linked import circles, joined
from solver.objective import Objective
from solver.problem import Group, Job, Op, Problem
from solver.result import Status
from solver.timeline import greedy_timeline, plan_of
from solver.verify import verify

EFFORT = Effort(10.0)
GROUPS = tuple(Group(name, 100) for name in "gh")


def spread(name, *ops, home="g", ahead=0, staleness=0, limit=1_000_000):
    """A job of ops given as (group or groups, duration, wait, switch)."""
    built = []
    for n, (places, *lengths) in enumerate(ops):
        group, *also = (places,) if isinstance(places, str) else places
        group = None if group == home else group
        built.append(Op(f"op{n}", *lengths, group=group, also=tuple(also)))
    return Job(
        name, tuple(built), 10, limit, pinned_group=home, ahead_ops=ahead, staleness=staleness
    )  # fmt: skip


def linked(*jobs, groups=GROUPS):
    return Problem(groups, jobs)


@st.composite
def linked_problems(draw):
    """Two jobs of two ops on two groups, at least one of them on both; ops may hold both."""
    length = st.tuples(st.integers(1, 4), st.sampled_from([0, 0, 1, 3]), st.sampled_from([0, 0, 1]))
    jobs = []
    for name in "ab":
        first = draw(st.sampled_from(["h", ("h", "g")] + ["g"] * (name == "b")))
        staleness = draw(st.sampled_from([0, 0, 1, 2])) if first == "h" else 0
        last = "g" if staleness else draw(st.sampled_from(["g", "g", ("g", "h")]))
        ops = [(first, *draw(length)), (last, *draw(length))]
        jobs.append(spread(name, *ops, ahead=min(staleness, 1), staleness=staleness))
    return linked(*jobs)


def best_cycle(problem):
    """The shortest cycle, by trying every start of every op within it."""
    cycle = cycle_floor_ticks(problem.jobs)
    while not any(
        _keeps(problem, cycle, (0, *starts))
        for starts in product(range(cycle), repeat=sum(len(j.ops) for j in problem.jobs) - 1)
    ):
        cycle += 1
    return cycle


def _keeps(problem, cycle, phases):
    rows = iter(phases)
    held = {}
    for job in problem.jobs:
        starts = []
        for op in job.ops:
            phase = next(rows)
            ready = starts[-1][0] + starts[-1][1] if starts else phase
            starts.append((phase + -(-(ready - phase) // cycle) * cycle, _length(op)))
            for group in job.groups_of(op):
                held.setdefault(group, []).append((phase, op, job.id))
        last = starts[-1][0] + starts[-1][1]
        if last > starts[0][0] + (1 + job.staleness) * cycle:
            return False
        if job.ahead_ops and not (starts[0][1] <= cycle and starts[1][1] <= cycle):
            return False
    return all(_fits(sorted(here, key=lambda at: at[0]), cycle) for here in held.values())


def _length(op):
    return op.duration_ticks + op.wait_ticks


def _fits(here, cycle):
    around = [*here, (here[0][0] + cycle, *here[0][1:])]
    return all(
        start + op.duration_ticks + (after.switch_ticks if other != job else 0) <= following
        for (start, op, job), (following, after, other) in pairwise(around)
    )


@pytest.mark.slow
@given(linked_problems())
@settings(max_examples=25)
def test_the_proven_cycle_is_the_shortest_there_is(problem):
    answer = shortest_cycle("g+h", problem.jobs, None, EFFORT)
    assert answer.ending is Ending.OPTIMAL
    assert answer.bound_ticks == answer.timeline.cycle_ticks == best_cycle(problem)
    assert verify(problem, plan_of(problem, [answer.timeline])).violations == ()


@pytest.mark.slow
@given(linked_problems())
@settings(max_examples=100)
def test_the_greedy_timeline_is_valid_and_the_solver_takes_it_as_a_hint(problem):
    built = greedy_timeline("g+h", problem.jobs)
    plan = plan_of(problem, [built])
    assert verify(problem, plan).violations == ()
    assert {timeline.group for timeline in plan.timelines} == {"g", "h"}
    assert set(joined(plan.timelines).timings) == set(built.timings)
    assert cycle_floor_ticks(problem.jobs) <= built.cycle_ticks


def pool_of_two():
    """Two jobs that sample on groups of their own and train in one pool."""
    groups = tuple(Group(name, 100) for name in ("train", "r0", "r1"))
    jobs = (
        spread(f"j{n}", (f"r{n}", 60, 5, 7), ("train", 30, 0, 2), home="train") for n in range(2)
    )
    return Problem(groups, tuple(jobs))


def test_a_training_pool_beside_private_rollouts_is_planned_to_its_optimum():
    problem = pool_of_two()
    result = solver.plan(problem, budget_s=20.0)
    assert result.status is Status.OPTIMAL
    # Each rollout group always has its job's state, and the pool has time for both.
    assert {entry.group: entry.cycle_ticks for entry in result.plan.timelines} == dict.fromkeys(
        ("train", "r0", "r1"), 95
    )
    assert result.plan.placement == {"j0": "train", "j1": "train"}
    assert result.plan.objective_ticks == result.bound_ticks == 3 * 95
    assert result.bound_class is BoundClass.COMMON_CYCLE
    assert set(result.plan.slowdowns_permille.values()) == {1000}


def test_rollouts_that_run_ahead_shorten_the_cycle_of_a_job_alone():
    ops = ("h", 50, 10, 0), ("g", 40, 0, 0)
    for staleness, cycle in ((0, 100), (1, 60), (2, 60)):
        job = spread("a", *ops, ahead=min(staleness, 1), staleness=staleness)
        problem = linked(job)
        assert job.alone_ticks == cycle
        plan = solver.greedy(problem)
        assert {entry.cycle_ticks for entry in plan.timelines} == {cycle}
        assert verify(problem, plan).is_valid


def test_groups_that_no_job_links_keep_their_own_cycles():
    alone = Job("alone", (Op("op", 500),), 10, pinned_group="x")
    problem = replace(
        pool_of_two(),
        groups=(*pool_of_two().groups, Group("x", 100)),
        jobs=(*pool_of_two().jobs, alone),
    )
    plan = solver.greedy(problem)
    assert plan.timeline("x").cycle_ticks == 500
    assert plan.timeline("train").cycle_ticks == 95
    placed = {"train": problem.jobs[:2], "x": problem.jobs[2:]}
    assert [circle.name for circle in circles(problem, placed)] == ["train+r0+r1", "x"]


def test_a_gang_waits_for_both_groups_and_both_for_it():
    gang = spread("gang", (("g", "h"), 10, 0, 0), ("g", 20, 0, 0))
    beside = spread("beside", ("h", 25, 0, 0))
    problem = linked(gang, beside)
    answer = shortest_cycle("g+h", problem.jobs, None, EFFORT)
    # The other group is busy with the gang and then with its own; both fit beside the training.
    assert answer.bound_ticks == answer.timeline.cycle_ticks == 35
    plan = plan_of(problem, [answer.timeline])
    assert verify(problem, plan).violations == ()
    lines = {line.group: line.timings for line in plan.timelines}
    (shared,) = set(lines["g"]) & set(lines["h"])
    assert (shared.job, shared.op) == ("gang", "op0")
    assert set(joined(plan.timelines).order) == {
        ("gang", "op0"), ("gang", "op1"), ("beside", "op0")
    }  # fmt: skip
    later = replace(shared, start_ticks=shared.start_ticks + 1)
    line = plan.timeline("h")
    moved = replace(line, timings=tuple(later if t == shared else t for t in line.timings))
    broken = replace(plan, timelines=(plan.timeline("g"), moved))
    assert not verify(problem, broken).is_valid
    alone = replace(line, timings=tuple(t for t in line.timings if t != shared))
    broken = replace(plan, timelines=(plan.timeline("g"), alone))
    (told, *_) = verify(problem, broken).violations
    assert "is served 0 times in the cycle of group 'h'" in told


def test_the_plan_in_force_is_kept_where_nothing_is_better():
    problem = pool_of_two()
    plan = solver.greedy(problem)
    result = solver.plan(problem, previous=plan, budget_s=0.0)
    assert result.plan.objective_ticks == plan.objective_ticks


def test_limits_that_no_common_cycle_keeps_are_named():
    short = spread("short", ("h", 2, 0, 0), ("g", 2, 0, 0), limit=1500)
    long = spread("long", ("h", 50, 0, 0), ("g", 50, 0, 0))
    result = solver.plan(linked(short, long), budget_s=10.0)
    assert (result.plan, result.status) == (None, Status.INFEASIBLE)
    assert "short, long have no common cycle on group g+h" in result.reason


@pytest.mark.parametrize(
    "change",
    [
        {"start_ticks": 3},
        {"wraps": 1},
        {"wraps": -1},
    ],
)
def test_every_op_that_is_moved_in_a_plan_without_slack_is_caught(change):
    problem = linked(spread("a", ("h", 10, 0, 0), ("g", 5, 0, 0)))
    plan = solver.greedy(problem)
    for at, timeline in enumerate(plan.timelines):
        broken = replace(timeline, timings=(replace(timeline.timings[0], **change),))
        lines = [broken if n == at else entry for n, entry in enumerate(plan.timelines)]
        assert not verify(problem, replace(plan, timelines=tuple(lines))).is_valid


def test_groups_of_one_job_must_have_one_cycle():
    problem = linked(spread("a", ("h", 10, 0, 0), ("g", 5, 0, 0)))
    plan = solver.greedy(problem)
    first, second = plan.timelines
    longer = replace(plan, timelines=(replace(first, cycle_ticks=99), second))
    (told, *_) = verify(problem, longer).violations
    assert "needs them equal" in told


@pytest.mark.parametrize("staleness", [1, 2])
def test_what_runs_ahead_too_far_is_caught(staleness):
    job = spread("a", ("h", 50, 10, 0), ("g", 40, 0, 0), ahead=1, staleness=staleness)
    plan = solver.greedy(linked(job))
    further = replace(plan.timeline("g").timings[0], wraps=staleness + 1)
    lines = [plan.timeline("h"), replace(plan.timeline("g"), timings=(further,))]
    found = verify(linked(job), replace(plan, timelines=tuple(lines)))
    assert any("before 'op1' and its wait end" in told for told in found.violations)


def test_a_problem_survives_json():
    problem = linked(
        spread("a", ("h", 50, 10, 0), ("g", 40, 0, 0), ahead=1, staleness=2),
        spread("b", (("g", "h"), 5, 0, 0)),
    )
    assert Problem.from_json(problem.to_json()) == problem


@pytest.mark.parametrize(
    ("jobs", "told"),
    [
        ([spread("a", ("nowhere", 1, 0, 0))], "runs on 'nowhere', which is no group"),
        ([spread("a", (("g", "nowhere"), 1, 0, 0))], "runs on 'nowhere', which is no group"),
        ([spread("a", (("g", "g"), 1, 0, 0))], "name each group once"),
        ([spread("a", ("h", 1, 0, 0)), Job("b", (Op("op", 1),), 1)], "pin every job"),
    ],
)
def test_groups_that_are_not_known_are_refused(jobs, told):
    with pytest.raises(ProblemError, match=told):
        linked(*jobs)


@pytest.mark.parametrize(
    ("ahead", "staleness", "first"), [(1, 0, "h"), (0, 1, "h"), (1, 1, "g"), (2, 1, "h")]
)
def test_ops_that_cannot_run_ahead_are_refused(ahead, staleness, first):
    with pytest.raises(ProblemError, match="ahead_ops"):
        spread("a", (first, 1, 0, 0), ("g", 1, 0, 0), ahead=ahead, staleness=staleness)


def test_only_rounds_are_planned_over_several_groups():
    with pytest.raises(SolverError, match="by the objective round only"):
        solver.plan(pool_of_two(), objective=Objective.GPU_HOURS)


def test_a_plan_in_force_that_still_holds_is_kept():
    problem = linked(
        spread("a", ("h", 10, 2, 0), (("g", "h"), 2, 0, 0), ("g", 5, 0, 0)),
        spread("b", ("h", 4, 9, 0), ("h", 3, 0, 0), home="h"),
    )
    found = solver.greedy(problem)
    again = solver.plan(problem, previous=found, budget_s=0.0)
    assert again.plan == found
    assert "previous" not in again.reason
