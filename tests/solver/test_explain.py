from dataclasses import replace

import pytest

from solver import Objective, Status, plan
from solver.explain import describe_bytes, describe_ticks, explain
from solver.problem import Group, Job, Problem
from tests.solver.instances import job, one_group, three_loops


def test_a_job_too_large_for_every_group_is_named_with_the_largest_group():
    problem = Problem(
        (Group("g", 456), Group("h", 300)), (job("j6", (1, 0, 0)), job("j7", (1, 0, 0), memory=520))
    )
    assert explain(problem) == (
        "job j7 needs 520 bytes on one group; the largest group has 456 bytes"
    )


def test_a_job_too_large_for_its_pool_or_its_pin_is_told_so():
    groups = (Group("g", 10**9, "H800"), Group("h", 9 * 10**9))
    assert "the largest group of pool H800 has 1 GB" in explain(
        Problem(groups, (job("a", (1, 0, 0), memory=2 * 10**9, pool="H800"),))
    )
    assert "pinned to, g, has 1 GB" in explain(
        Problem(groups, (job("a", (1, 0, 0), memory=2 * 10**9, pinned_group="g"),))
    )
    assert "in pool default; that group is in pool H800" in explain(
        Problem(groups, (job("a", (1, 0, 0), pool="default", pinned_group="g"),))
    )


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"memory": 25}, "jobs math, tool and judge need 30 bytes together; group g has 25 bytes"),
        ({"max_jobs": 2}, "jobs math, tool and judge are 3 jobs; group g may carry 2"),
    ],
)
def test_what_one_group_cannot_hold_is_named(more, message):
    assert explain(one_group(*three_loops(), **more)) == message


def test_only_the_jobs_that_clash_are_named():
    strict = tuple(replace(j, slowdown_limit_permille=1100) for j in three_loops())
    assert explain(one_group(*strict)) == (
        "jobs tool and judge keep group g busy for 9.4 s per iteration of each; "
        "job tool allows 9.35 s (1.1 times its 8.5 s alone)"
    )


def test_a_job_too_slow_for_another_is_named():
    problem = one_group(job("slow", (10, 9990, 0)), job("fast", (100, 0, 0), limit=2000))
    assert explain(problem) == (
        "job slow takes 10 s per iteration even alone; job fast, which would share group g with "
        "it, allows 200 ms (2 times its 100 ms alone)"
    )


def test_a_forbidden_pair_on_the_only_group_is_named():
    problem = one_group(job("a", (1, 0, 0), forbids=("b",)), job("b", (1, 0, 0)))
    assert explain(problem) == "jobs a and b must not share a group; there is only g"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"memory_bytes": 99},
            "the 3 jobs need 297 bytes together; the 2 groups have 200 bytes",
        ),
        (
            {"slowdown_limit_permille": 1000, "ops": job("x", (9, 1, 0)).ops},
            "the 3 jobs need the time of 2.7 groups to keep their slowdown limits; there are 2",
        ),
    ],
)
def test_what_all_groups_together_cannot_give_is_named(change, message):
    jobs = tuple(replace(j, **change) for j in three_loops())
    assert explain(Problem((Group("g", 100), Group("h", 100)), jobs)) == message


def test_what_repeated_passes_could_serve_is_not_called_impossible():
    short, long = job("short", (10, 40, 0), limit=1200), job("long", (200, 300, 0), limit=1200)
    assert "job short allows 60 ms" in explain(one_group(short, long))
    assert explain(one_group(short, long), most_passes=20) == ""


def test_what_no_schedule_can_serve_is_named_with_the_time_it_needs():
    jobs = [job(f"j{index}", (40, 60, 0), limit=1200) for index in range(4)]
    assert explain(one_group(*jobs), most_passes=5) == (
        "jobs j0, j1, j2 and j3 need 133.6 % of the time of group g to keep their slowdown limits, "
        "however often each passes its loop"
    )
    result = plan(one_group(*jobs), objective=Objective.GROUPS, most_passes=5)
    assert (result.status, result.plan) == (Status.INFEASIBLE, None)


def test_ten_thousand_jobs_on_one_group_get_an_answer_at_once():
    ops = job("x", (1000, 1000, 10)).ops
    jobs = tuple(Job(f"j{i}", ops, 0, 2000) for i in range(10_000))
    assert explain(Problem((Group("g", 1),), jobs)).startswith(
        "jobs j0, j1, j2, j3, j4, j5 and 9994 more keep group g busy for 10100 s"
    )


@pytest.mark.parametrize(
    ("change", "kind"),
    [({"memory_bytes": 60}, "memory"), ({"slowdown_limit_permille": 1000}, "slowdown limits")],
)
def test_the_requirement_that_binds_on_several_groups_is_named(change, kind):
    jobs = tuple(replace(j, **change) for j in three_loops())
    found = explain(Problem((Group("g", 100), Group("h", 100)), jobs))
    assert found == (
        "jobs math, tool and judge cannot be placed together on 2 groups; "
        f"they could be without their requirements on {kind}"
    )


def test_a_problem_with_a_plan_needs_no_reason():
    assert explain(one_group(*three_loops())) == ""


def test_amounts_read_as_people_write_them():
    assert [describe_bytes(n) for n in (0, 999, 1500, 520 * 10**9, 10**15)] == [
        "0 bytes",
        "999 bytes",
        "1.5 kB",
        "520 GB",
        "1000 TB",
    ]
    assert [describe_ticks(n) for n in (5, 999, 12_500)] == ["5 ms", "999 ms", "12.5 s"]
