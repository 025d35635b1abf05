import json
import pickle
from dataclasses import replace

import pytest

import solver
from solver.errors import ProblemError
from solver.problem import MAX_TICKS, Group, Job, Op, Problem
from tests.solver.instances import job, one_group, three_loops


def test_times_of_a_job_follow_from_its_ops():
    found = job("a", (30, 70, 5), (10, 0, 5), limit=1500)
    assert (found.busy_ticks, found.alone_ticks, found.limit_ticks) == (40, 110, 165)


def test_a_problem_survives_json_and_pickle():
    jobs = (*three_loops(), job("shy", (5, 0, 0), forbids=("math",), pinned_group="h"))
    problem = Problem((Group("g", 100), Group("h", 50, "big", 3, 2)), jobs, {"math": "g"}, 7)
    assert Problem.from_json(json.dumps(problem.to_json())) == problem
    assert Problem.from_json(problem.to_json()) == problem
    assert pickle.loads(pickle.dumps(problem)) == problem


@pytest.mark.parametrize("value", [float("nan"), -5, 0, 1.5, True, "3", None, MAX_TICKS + 1])
def test_a_bad_duration_is_refused_with_its_path(value):
    data = one_group(*three_loops()).to_json()
    data["jobs"][1]["ops"][0]["duration_ticks"] = value
    with pytest.raises(ProblemError, match=r"^jobs\[1\]: |^jobs\[1\]\.ops\[0\]: duration_ticks"):
        Problem.from_json(data)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("memory_bytes", -1),
        ("slowdown_limit_permille", 999),
        ("weight", 0),
        *(("id", name) for name in (" ", "a\nb", "\x1b[31m", "a\u202eb", "\ud83d")),
    ],
)
def test_a_bad_value_of_a_job_is_refused_by_name(field, value):
    with pytest.raises(ProblemError, match=field):
        replace(three_loops()[0], **{field: value})


@pytest.mark.parametrize(
    ("field", "value"), [("memory_bytes", 0), ("max_jobs", 0), ("price", 0), ("pool", "")]
)
def test_a_bad_value_of_a_group_is_refused_by_name(field, value):
    with pytest.raises(ProblemError, match=field):
        replace(Group("g", 1), **{field: value})


def test_nothing_to_plan_is_refused():
    with pytest.raises(ProblemError, match="jobs is empty"):
        one_group()
    with pytest.raises(ProblemError, match="groups is empty"):
        Problem((), three_loops())
    with pytest.raises(ProblemError, match="ops of job 'a' is empty"):
        Job("a", (), 1)


def test_names_that_repeat_are_refused():
    with pytest.raises(ProblemError, match=r"jobs\[1\].*'a', as jobs\[0\]"):
        one_group(job("a", (1, 0, 0)), job("a", (1, 0, 0)))
    with pytest.raises(ProblemError, match=r"groups\[1\]"):
        Problem((Group("g", 1), Group("g", 1)), three_loops())
    with pytest.raises(ProblemError, match=r"ops\[1\]"):
        Job("a", (Op("x", 1), Op("x", 1)), 1)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"pool": "tpu"}, "pool is 'tpu'"),
        ({"pinned_group": "h9"}, "pinned_group is 'h9'"),
        ({"forbids": ("nobody",)}, "forbids 'nobody'"),
        ({"forbids": ("a",)}, "forbids 'a'"),
    ],
)
def test_references_to_what_is_not_there_are_refused(more, message):
    with pytest.raises(ProblemError, match=message):
        one_group(job("a", (1, 0, 0), **more))


@pytest.mark.parametrize("current", [{"zoe": "g"}, {"math": "h9"}])
def test_a_current_placement_of_what_is_not_there_is_refused(current):
    with pytest.raises(ProblemError, match="current"):
        Problem((Group("g", 100),), three_loops(), current)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": 7}, "format is 7"),
        ({"extra": 1}, "unknown field 'extra'"),
        ({"jobs": 3}, "jobs is 3; give a list"),
        ({"jobs": [3]}, r"jobs\[0\] is 3; give an object"),
        ({"groups": [{"id": "g"}]}, r"groups\[0\] lacks a field"),
        ({"current": 3}, "current is 3"),
    ],
)
def test_malformed_data_is_refused_with_its_path(change, message):
    with pytest.raises(ProblemError, match=message):
        Problem.from_json(one_group(*three_loops()).to_json() | change)


def test_text_that_is_no_json_is_refused():
    with pytest.raises(ProblemError, match="not JSON"):
        Problem.from_json("{")


def test_without_limits_only_the_limits_change():
    problem = one_group(*three_loops())
    relaxed = problem.without_limits()
    assert [j.ops for j in relaxed.jobs] == [j.ops for j in problem.jobs]
    assert all(j.slowdown_limit_permille == 1_000_000 for j in relaxed.jobs)


def test_what_holds_for_a_whole_problem_is_found_once(monkeypatch):
    """Planning asks for it for each group: with thousands of both that would take minutes."""
    asked = []
    spread = Job.is_spread.fget
    monkeypatch.setattr(Job, "is_spread", property(lambda j: asked.append(j.id) or spread(j)))
    groups = tuple(Group(f"g{index}", 100) for index in range(20))
    jobs = tuple(job(f"j{index}", (50, 0, 0), memory=100) for index in range(20))
    problem = Problem(groups, jobs)
    assert len(asked) == 20
    assert len(solver.greedy(problem).timelines) == 20
    assert len(asked) <= 100
