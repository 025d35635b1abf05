from dataclasses import replace

from hypothesis import given, settings

from solver.bounds import BoundClass, cycle_floor_ticks, simple_bounds
from solver.problem import Group, Problem
from tests.solver.instances import best_cycle, job, jobs_of_one_group, one_group, three_loops


def test_jobs_that_share_are_switched_to_once_a_cycle():
    a, b = job("a", (10, 0, 3), (10, 0, 1)), job("b", (10, 0, 2))
    assert cycle_floor_ticks([a]) == 20
    assert cycle_floor_ticks([a, b]) == 33


def test_the_longest_job_alone_is_a_floor():
    assert cycle_floor_ticks([job("a", (10, 90, 0)), job("b", (10, 0, 0))]) == 100


@given(jobs_of_one_group())
@settings(max_examples=30)
def test_no_cycle_is_below_the_floor(jobs):
    assert cycle_floor_ticks(jobs) <= best_cycle(jobs)


def test_the_universal_bound_knows_no_switches():
    bounds = {
        (b.bound_class, str(b.proof)): b.ticks for b in simple_bounds(one_group(*three_loops()))
    }
    assert bounds[BoundClass.UNIVERSAL, "load"] == 13_500
    assert bounds[BoundClass.COMMON_CYCLE, "load"] == 14_100


def test_bounds_take_the_cheapest_group_a_job_may_use():
    groups = (Group("cheap", 5, price=1), Group("dear", 100, price=7))
    jobs = (job("a", (10, 20, 0), memory=5), job("b", (10, 0, 0)))
    by_class = {b.bound_class: b.ticks for b in simple_bounds(Problem(groups, jobs))}
    assert by_class == {BoundClass.UNIVERSAL: 80, BoundClass.COMMON_CYCLE: 70}


def test_a_job_that_fits_nowhere_leaves_no_bound():
    assert simple_bounds(one_group(replace(three_loops()[0], memory_bytes=101))) == ()
