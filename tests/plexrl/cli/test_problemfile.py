"""Problem files: what is right is read, what is wrong is named with its place and its remedy."""

from __future__ import annotations

import json
import os
from dataclasses import replace

import pytest
import yaml

import solver
from plexrl.cli.problemfile import EXAMPLE, SCHEMA, read_plan, read_problem, to_file
from plexrl.errors import InputError

GOOD = {
    "format": 1,
    "groups": [{"name": "node", "count": 2, "memory_gb": 100, "price": 2.5}],
    "jobs": [
        {"name": "a", "ops": [{"name": "roll", "duration_s": 1.5, "wait_s": 2}]},
        {"name": "b", "ops": [{"name": "roll", "duration_s": 2}], "slowdown_limit": 1.25},
    ],
}


def write(tmp_path, data, name="problem.yaml"):
    path = tmp_path / name
    path.write_text(data if isinstance(data, str) else yaml.safe_dump(data), encoding="utf-8")
    return path


def changed(**places):
    """A copy of the good file with values put at dotted places."""
    data = json.loads(json.dumps(GOOD))
    for place, value in places.items():
        *path, last = [int(p) if p.isdigit() else p for p in place.split("__")]
        inside = data
        for part in path:
            inside = inside[part]
        inside[last] = value
    return data


def test_the_example_is_read_and_has_a_plan(tmp_path):
    problem = read_problem(write(tmp_path, EXAMPLE))
    assert [group.id for group in problem.groups] == ["node-0", "node-1"]
    assert solver.greedy(problem).placement.keys() == {"math", "agent", "search"}


def test_seconds_and_gigabytes_become_integers(tmp_path):
    problem = read_problem(write(tmp_path, GOOD))
    assert problem.jobs[0].ops[0].duration_ticks == 1500
    assert problem.jobs[0].alone_ticks == 3500
    assert problem.jobs[1].slowdown_limit_permille == 1250
    assert problem.groups[0].memory_bytes == 100 * 10**9
    assert problem.groups[0].price == 250


def test_json_is_read_as_yaml_is(tmp_path):
    path = write(tmp_path, json.dumps(GOOD), "problem.json")
    assert read_problem(path) == read_problem(write(tmp_path, GOOD))


def test_what_the_solver_writes_is_read_too(tmp_path):
    problem = read_problem(write(tmp_path, GOOD))
    assert read_problem(write(tmp_path, json.dumps(problem.to_json()), "p.json")) == problem


def test_jobs_over_several_groups_are_read_back_equal(tmp_path):
    problem = read_problem(write(tmp_path, EXAMPLE))
    first, *others = (replace(job, pinned_group="node-0") for job in problem.jobs)
    rollout = replace(first.ops[0], group="node-1")
    apart = replace(first, ops=(rollout, *first.ops[1:]), ahead_ops=1, staleness=2)
    gang = replace(others[0].ops[0], also=("node-1",))
    others[0] = replace(others[0], ops=(gang, *others[0].ops[1:]))
    problem = replace(problem, jobs=(apart, *others))
    assert read_problem(write(tmp_path, to_file(problem), "again.yaml")) == problem


def test_a_problem_written_as_a_file_is_read_back_equal(tmp_path):
    problem = read_problem(write(tmp_path, EXAMPLE))
    moving = replace(problem.jobs[0], move_ticks=60_000)
    problem = replace(problem, jobs=(moving, *problem.jobs[1:]), horizon_ticks=7_200_000)
    assert read_problem(write(tmp_path, to_file(problem), "again.yaml")) == problem


def test_a_group_of_an_op_that_is_none_is_named(tmp_path):
    data = changed(
        jobs__0__ops__0__group="node-7", jobs__0__group="node-0", jobs__1__group="node-1"
    )
    with pytest.raises(InputError, match=r"jobs\[0\]\.ops\[0\]\.group is 'node-7'.* did you mean"):
        read_problem(write(tmp_path, data))


@pytest.mark.parametrize(
    ("place", "value", "words"),
    [
        ("jobs__0__ops__0__duration_s", float("nan"), "jobs[0].ops[0].duration_s is nan"),
        ("jobs__0__ops__0__duration_s", float("inf"), "jobs[0].ops[0].duration_s is inf"),
        ("jobs__0__ops__0__duration_s", -1, "jobs[0].ops[0].duration_s is -1"),
        ("jobs__0__ops__0__duration_s", 0, "jobs[0].ops[0].duration_s is 0"),
        ("jobs__0__ops__0__duration_s", 1e12, "jobs[0].ops[0].duration_s is 1000000000000.0"),
        ("jobs__0__ops__0__duration_s", "long", 'jobs[0].ops[0].duration_s is "long"'),
        ("jobs__0__ops__0__wait_s", -0.5, "jobs[0].ops[0].wait_s is -0.5"),
        ("jobs__0__ops", [], "jobs[0].ops is []"),
        ("jobs__0__pool", "h900", "jobs[0].pool is 'h900', which is no pool of a group"),
        ("jobs__0__group", "node-7", "jobs[0].group is 'node-7', which is no group; did you"),
        ("jobs__0__ops__0__group", "node-0", "].group is missing, while ops name groups"),
        ("jobs__1__ops__0__group", "node-7", "jobs[0].group is missing"),
        ("jobs__0__staleness", 1, "has ahead_ops=0 and staleness=1"),
        ("jobs__0__apart_from", ["zoe"], "jobs[0].apart_from[0] is 'zoe', which is no other job"),
        ("jobs__1__name", "a", "jobs[1] of the problem is 'a'"),
        ("jobs__1__slowdown_limit", 0.5, "jobs[1].slowdown_limit is 0.5"),
        ("jobs__1__slowdwn_limit", 2, "jobs[1].slowdwn_limit is no known key"),
        ("jobs", [], "jobs is []"),
        ("groups__0__count", 10**9, "groups[0].count is 1000000000"),
        ("groups__0__memory_gb", None, "groups[0].memory_gb is null"),
        ("jobs__0__move_s", -1, "jobs[0].move_s is -1"),
        ("horizon_s", 0, "horizon_s is 0"),
        ("format", 2, "format is 2"),
        ("current", {"zoe": "node-0"}, "current names job 'zoe'"),
        ("jobs__0__name", "two\nlines", "in 1 to 200 printable characters"),
        ("jobs__0__name", "x" * 201, "in 1 to 200 printable characters"),
        ("jobs__0__ops__0__name", "a\u202eb", "in 1 to 200 printable characters"),
        ("jobs__0__ops__0__cv", 0.3, "jobs[0].ops[0].cv goes with ops that name pools"),
        ("jobs__1__copy_s", 3, "jobs[1].copy_s goes with ops that name pools"),
        ("groups", [{"name": f"g{i}", "count": 60_000, "memory_gb": 1} for i in "ab"], "120000"),
    ],
)
def test_what_is_wrong_is_named_with_its_place(tmp_path, place, value, words):
    path = write(tmp_path, changed(**{place: value}))
    with pytest.raises(InputError) as caught:
        read_problem(path)
    assert words in str(caught.value)
    assert str(path) in str(caught.value)


def test_a_missing_key_is_named(tmp_path):
    data = changed()
    del data["jobs"][1]["ops"]
    with pytest.raises(InputError, match=r"jobs\[1\]\.ops is missing; give a list"):
        read_problem(write(tmp_path, data))


BOMB = "a: &a [1, 1]\n" + "".join(
    f"{chr(98 + i)}: &{chr(98 + i)} [*{chr(97 + i)}, *{chr(97 + i)}]\n" for i in range(24)
)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "- 1\n",
        "a: [1",
        "{",
        "\t: x",
        BOMB,
        "jobs: &j [*j]\ncurrent: {}\n",
        "&a {format: 1, groups: *a, jobs: *a}",
        "[" * 50_000,
    ],
)
def test_a_file_that_is_no_problem_says_so(tmp_path, text):
    with pytest.raises(InputError):
        read_problem(write(tmp_path, text))


@pytest.mark.parametrize("text", ["a: 1\na: 2\n", '{"a": 1, "a": 2}', "{a: 1, a: 2}"])
def test_a_key_that_stands_there_twice_is_named(tmp_path, text):
    with pytest.raises(InputError, match="'a' stands there twice"):
        read_problem(write(tmp_path, text))


def test_what_may_never_end_is_not_read(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", "/dev/zero"):
        with pytest.raises(InputError, match="no regular file"):
            read_problem(path)


def test_a_file_that_is_not_there_says_so(tmp_path):
    with pytest.raises(InputError, match="cannot be read"):
        read_problem(tmp_path / "none.yaml")


def test_a_plan_is_read_alone_or_inside_a_result(tmp_path):
    problem = read_problem(write(tmp_path, GOOD))
    made = solver.greedy(problem)
    alone = write(tmp_path, json.dumps(made.to_json()), "plan.json")
    inside = write(tmp_path, json.dumps({"status": "x", "plan": made.to_json()}), "result.json")
    assert read_plan(alone) == read_plan(inside) == made
    with pytest.raises(InputError, match="of the plan is"):
        read_plan(write(tmp_path, GOOD))


BOMB = "a0: &a0 [x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 8)}]\n" for i in range(1, 400)
)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (BOMB, "holds over 10 million values with its aliases written out"),
        ("groups: &g [a, *g]\njobs: *g\n", "has an alias that holds itself"),
        ('{"format": 1, "groups": [], "jobs": [{"name": "\\ud83d"}]}', "half a character"),
        ("format: 1\nformat: 1\n", "stands there twice"),
        ("\0", "is neither YAML nor JSON"),
    ],
)
def test_what_no_file_should_hold_is_refused_at_once(tmp_path, text, words):
    with pytest.raises(InputError) as caught:
        read_problem(write(tmp_path, text))
    assert words in str(caught.value)
    assert "\ud83d" not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_aliases_that_say_less_than_they_could_are_read(tmp_path):
    text = """
format: 1
groups: [{name: g, count: 2, memory_gb: 1}]
jobs:
  - {name: a, ops: &loop [{name: roll, duration_s: 1}, {name: train, duration_s: 2}]}
  - {name: b, ops: *loop}
"""
    first, other = read_problem(write(tmp_path, text)).jobs
    assert first.ops == other.ops


def subschemas(schema, path=""):
    yield path, schema
    for key in ("properties", "items", "additionalProperties"):
        inner = schema.get(key)
        if isinstance(inner, dict):
            named = inner.items() if key == "properties" else [(key, inner)]
            for name, entry in named:
                yield from subschemas(entry, f"{path}.{name}")


def test_every_part_of_the_schema_says_what_to_give():
    """It is the remedy that users are told."""
    schema = json.loads(SCHEMA.read_text(encoding="utf-8"))
    found = list(subschemas(schema))
    assert len(found) > 40
    assert [path for path, entry in found if "description" not in entry] == []


@pytest.mark.parametrize(
    ("place", "value", "words"),
    [
        ("jobs__0__apart_from", [1], "jobs[0].apart_from[0] is 1; give the name of another job"),
        ("jobs__0__apart_from", ["b", "b"], "jobs[0].apart_from[1] is 'b' a second time"),
        ("current", {"a": []}, "current.a is []; give the name of a group"),
        ("current", {"a": [2]}, "current.a[0] is 2; give the name of a group"),
    ],
)
def test_lists_of_names_are_told_what_to_hold(tmp_path, place, value, words):
    with pytest.raises(InputError) as caught:
        read_problem(write(tmp_path, changed(**{place: value})))
    assert words in str(caught.value)
