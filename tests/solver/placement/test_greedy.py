from dataclasses import replace

from solver.placement.greedy import greedy_plan
from solver.problem import Group, Problem
from solver.verify import verify
from tests.solver.instances import job, three_loops


def _placed(groups, jobs, **more):
    problem = Problem(tuple(groups), tuple(jobs), **more)
    plan = greedy_plan(problem)
    assert plan is None or verify(problem, plan).violations == ()
    return None if plan is None else dict(plan.placement)


def test_jobs_that_fit_into_waits_share_the_cheapest_group():
    groups = [Group("dear", 100, price=3), Group("cheap", 100)]
    assert set(_placed(groups, three_loops()).values()) == {"cheap"}


def test_jobs_whose_limits_forbid_sharing_get_groups_of_their_own():
    jobs = [job(f"j{i}", (10, 0, 0), limit=1000) for i in range(3)]
    assert len(set(_placed([Group(f"g{i}", 100) for i in range(3)], jobs).values())) == 3
    assert _placed([Group(f"g{i}", 100) for i in range(2)], jobs) is None


def test_memory_pools_pins_and_forbidden_pairs_are_kept():
    groups = [Group("g", 20), Group("h", 20, "big"), Group("i", 100, price=9)]
    jobs = [
        job("a", (10, 50, 0), pool="big"),
        job("b", (10, 50, 0), pinned_group="i"),
        job("c", (10, 50, 0), forbids=("d",)),
        job("d", (10, 50, 0), memory=20),
    ]
    placed = _placed(groups, jobs)
    assert (placed["a"], placed["b"]) == ("h", "i")
    assert placed["c"] != placed["d"]


def test_a_job_stays_where_it_is_among_equals():
    groups = [Group(f"g{i}", 100) for i in range(4)]
    assert _placed(groups, three_loops()[:1], current={"math": "g2"}) == {"math": "g2"}


def test_a_group_takes_no_more_jobs_than_it_may_carry():
    groups = [Group("g", 100, max_jobs=2), Group("h", 100, max_jobs=1)]
    placed = list(_placed(groups, three_loops()).values())
    assert (placed.count("g"), placed.count("h")) == (2, 1)


def test_many_jobs_are_placed_and_verified():
    jobs = [
        replace(three_loops()[i % 3], id=f"j{i}", slowdown_limit_permille=1500 + 10 * (i % 50))
        for i in range(60)
    ]
    assert len(_placed([Group(f"g{i}", 40) for i in range(60)], jobs)) == 60
