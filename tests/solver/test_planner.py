import json
import multiprocessing
from dataclasses import replace

import pytest

import solver
from solver import BoundClass, Group, PlanError, Problem, Source, Status
from solver.verify import verify
from tests.solver.instances import contested, job, one_group, three_loops


def _checked(problem, **more):
    result = solver.plan(problem, **more)
    assert result.plan is None or verify(problem, result.plan).violations == ()
    return result


@pytest.mark.slow
def test_three_jobs_on_one_group_get_a_proven_plan():
    result = _checked(one_group(*three_loops()), budget_s=20.0)
    assert (result.status, result.source) == (Status.OPTIMAL, Source.CPSAT)
    assert result.plan.objective_ticks == result.bound_ticks == 14_100
    assert result.bound_class is BoundClass.COMMON_CYCLE
    assert (result.gap, result.is_verified, result.reason) == (0.0, True, "")
    assert json.loads(json.dumps(result.to_json()))["status"] == "optimal"


@pytest.mark.slow
def test_the_solver_improves_on_the_greedy_plan_and_every_step_is_told():
    told = []
    problem = one_group(*contested())
    result = _checked(problem, budget_s=20.0, on_incumbent=told.append)
    objectives = [incumbent.objective_ticks for incumbent in told]
    assert tuple(told) == result.incumbents
    assert objectives == sorted(objectives, reverse=True)
    assert told[0].source is Source.GREEDY
    assert result.plan.objective_ticks == objectives[-1] < solver.greedy(problem).objective_ticks


@pytest.mark.slow
def test_the_same_input_gives_the_same_plan():
    problem = one_group(*contested())
    assert _checked(problem, budget_s=20.0).plan == _checked(problem, budget_s=20.0).plan


@pytest.mark.slow
def test_planning_works_in_a_daemonic_process():
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        result = pool.apply(solver.plan, (one_group(*three_loops()),), {"budget_s": 20.0})
    assert result.status is Status.OPTIMAL


def test_without_time_the_greedy_plan_serves():
    result = _checked(one_group(*contested()), budget_s=0.0)
    assert (result.status, result.source) == (Status.OUT_OF_TIME, Source.GREEDY)
    assert result.gap > 0


def test_a_plan_that_still_holds_is_kept():
    problem = one_group(*three_loops())
    before = _checked(problem, budget_s=0.0).plan
    result = _checked(problem, previous=before, budget_s=0.0)
    assert (result.plan, result.source) == (before, Source.PREVIOUS)


def test_jobs_stay_on_their_groups_when_others_come():
    groups = tuple(Group(f"g{i}", 100) for i in range(3))
    first = Problem(groups, (replace(three_loops()[0], pinned_group="g2"),))
    before = _checked(first, budget_s=0.0).plan
    after = _checked(Problem(groups, three_loops()), previous=before, budget_s=0.0)
    assert after.plan.placement["math"] == "g2"
    assert "does not fit" in after.reason


def test_a_previous_plan_for_groups_that_are_gone_is_no_obstacle():
    before = _checked(one_group(*three_loops()), budget_s=0.0).plan
    problem = Problem((Group("new", 100),), three_loops())
    assert _checked(problem, previous=before, budget_s=0.0).plan.placement["math"] == "new"


def test_an_impossible_problem_is_infeasible_with_its_reason():
    result = _checked(one_group(*three_loops(), memory=25))
    assert (result.status, result.plan, result.gap) == (Status.INFEASIBLE, None, None)
    assert result.reason == "jobs math, tool and judge need 30 bytes together; group g has 25 bytes"
    with pytest.raises(PlanError, match="30 bytes together"):
        solver.greedy(one_group(*three_loops(), memory=25))


def _just_too_tight():
    """Load and chain allow a cycle of 100, but the two loops do not interlock."""
    return (
        job("a", (30, 20, 0), (30, 20, 0), limit=1000),
        job("b", (25, 10, 0), (15, 50, 0), limit=1000),
    )


@pytest.mark.slow
def test_jobs_without_a_common_cycle_are_infeasible_by_search():
    result = _checked(one_group(*_just_too_tight()), budget_s=20.0)
    assert result.status is Status.INFEASIBLE
    assert "no common cycle" in result.reason


def test_out_of_time_without_a_plan_is_not_called_infeasible():
    result = _checked(one_group(*_just_too_tight()), budget_s=0.0)
    assert (result.status, result.plan) == (Status.OUT_OF_TIME, None)
    assert "allow more time" in result.reason


def test_several_groups_get_an_optimal_placement():
    groups = (Group("g", 20), Group("h", 20), Group("i", 100, price=2))
    result = _checked(Problem(groups, three_loops()), budget_s=0.0)
    assert result.status is Status.OPTIMAL
    assert set(result.plan.placement.values()) == {"g", "h"}
