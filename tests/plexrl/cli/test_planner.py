"""The planner's commands from the command line."""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import solver
from plexrl.cli.main import app
from plexrl.cli.planner_frontier import frontier, saving_of
from plexrl.cli.planner_profile import problem_of_log
from plexrl.cli.planner_rehearsal import Noise, rehearse
from plexrl.cli.planner_tables import changes
from plexrl.cli.planner_whatif import what_if
from plexrl.cli.problemfile import EXAMPLE, read_problem
from plexrl.cli.shapes import VARIABLE, published_shapes
from plexrl.errors import InputError


@pytest.fixture
def example(tmp_path):
    path = tmp_path / "problem.yaml"
    path.write_text(EXAMPLE, encoding="utf-8")
    return path


def run(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_the_example_is_a_file_to_start_from():
    done = run("plan", "--example")
    assert done.exit_code == 0
    assert done.stdout == EXAMPLE


@pytest.mark.slow
def test_plan_writes_a_plan_and_a_page_that_verify_accepts(example, tmp_path):
    plan, page = tmp_path / "plan.json", tmp_path / "plan.html"
    done = run("plan", example, "--budget", 0, "--output", plan, "--report", page, "--json")
    assert done.exit_code == 0
    assert json.loads(done.stdout)["is_verified"] is True
    assert run("verify", example, plan).exit_code == 0
    text = page.read_text(encoding="utf-8")
    assert "Plan for 3 jobs" in text
    assert "<script src=" not in text


def test_plan_for_people_names_every_job_and_what_is_proven(example):
    done = run("plan", example, "--budget", 0, "--frontier")
    assert done.exit_code == 0
    for word in ("math", "agent", "search", "bound", "saving", "If every job"):
        assert word in done.stdout


def test_a_plan_that_was_tampered_with_is_rejected(example, tmp_path):
    plan = tmp_path / "plan.json"
    run("plan", example, "--budget", 0, "--output", plan)
    data = json.loads(plan.read_text(encoding="utf-8"))
    data["timelines"][0]["cycle_ticks"] -= 1
    for timeline in data["timelines"]:
        del timeline["order"], timeline["prefetch"]
    plan.write_text(json.dumps(data), encoding="utf-8")
    done = run("verify", example, plan, "--json")
    assert done.exit_code == 1
    assert json.loads(done.stdout)["violations"]
    assert run("simulate", example, "--plan", plan).exit_code == 2


def test_a_diff_says_who_moves(example, tmp_path):
    plan, small = tmp_path / "plan.json", tmp_path / "small.yaml"
    run("plan", example, "--budget", 0, "--output", plan)
    small.write_text(EXAMPLE.replace("count: 2", "count: 3"), encoding="utf-8")
    done = run("plan", example, "--budget", 0, "--diff", plan, "--json")
    assert json.loads(done.stdout)["changes"] == []
    old = solver.Plan.from_json(plan.read_text(encoding="utf-8"))
    problem = read_problem(example)
    fewer = solver.Problem(problem.groups, problem.jobs[:2])
    gone = {row.job for row in changes(old, solver.greedy(fewer)).rows if row.new_group is None}
    assert gone == {"search"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("objective", "unit"),
    [("groups", "2 groups"), ("cost", "84.48 price of all groups"), ("throughput", "jobs at full")],
)
def test_a_plan_is_judged_by_what_is_asked_for(example, objective, unit):
    done = run("plan", example, "--budget", 5, "--objective", objective)
    assert done.exit_code == 0
    assert unit in done.stdout


LINKED = {
    "format": 1,
    "groups": [{"name": "a", "memory_gb": 100}, {"name": "b", "memory_gb": 100}],
    "jobs": [
        {
            "name": "x",
            "group": "a",
            "ops": [
                {"name": "rollout", "duration_s": 10, "group": "b", "wait_s": 2},
                {"name": "sync", "duration_s": 2, "also": ["b"]},
                {"name": "train", "duration_s": 5},
            ],
        },
        {
            "name": "y",
            "group": "b",
            "ops": [
                {"name": "rollout", "duration_s": 4, "wait_s": 9},
                {"name": "train", "duration_s": 3},
            ],
        },
    ],
}


@pytest.mark.slow
def test_jobs_over_several_groups_have_all_that_others_have(tmp_path):
    """Alone, x takes 19 s of two groups and y 16 s of one: 54 s, where the cycle takes 2 × 20 s."""
    file, plan, page = (tmp_path / name for name in ("p.json", "plan.json", "page.html"))
    file.write_text(json.dumps(LINKED), encoding="utf-8")
    done = run("plan", file, "--output", plan, "--report", page, "--what-if", "--frontier")
    assert done.exit_code == 0, done.output
    assert "25.9% of group-time against groups of their own" in done.stdout
    assert "one more job like x, on its groups" in done.stdout
    assert "one more job like x" in page.read_text(encoding="utf-8")
    again = run("plan", file, "--budget", 0, "--diff", plan)
    assert "a round takes 40 → 40; nothing else changes" in again.stdout
    assert "previous plan" not in again.stdout


def test_a_plan_of_several_pools_is_told_from_one_of_single_groups(example, tmp_path):
    plan = tmp_path / "seats.json"
    plan.write_text(json.dumps({"format": 1, "seats": []}), encoding="utf-8")
    for done in (run("verify", example, plan), run("plan", example, "--diff", plan)):
        assert done.exit_code == 2
        assert "is a plan where ops name pools" in done.output


def test_a_plan_at_hand_is_a_point_of_the_frontier_wherever_it_holds(monkeypatch, example):
    """Where nothing is found anew, limits that the plan keeps still have it."""
    problem = read_problem(example)
    plan = solver.greedy(problem)
    none = solver.Result(solver.Status.UNKNOWN, 0.0, reason="nothing was looked for")
    monkeypatch.setattr(solver, "plan", lambda *_, **__: none)
    found = {point.slowdown_limit: point for point in frontier(problem, plan, 0)}
    assert (found[1.2].value, found[1.2].reason) == (None, "nothing was looked for")
    assert found[1.5].value == found[2.0].value == plan.objective_ticks / 100_000


@pytest.mark.slow
def test_the_starter_file_is_solved_and_the_solver_ends_by_itself(example):
    result = solver.plan(read_problem(example), budget_s=60)
    assert (result.status, result.reason) == (solver.Status.OPTIMAL, "")


def test_passes_go_with_some_objectives_only(example):
    done = run("plan", example, "--passes", 3)
    assert done.exit_code == 2
    assert "--passes 3 does not go with --objective round" in done.output
    data = json.loads(run("plan", example, "--passes", 3, "--objective", "cost", "--json").stdout)
    assert (data["objective"], data["is_verified"]) == ("cost", True)


def test_what_if_there_was_one_more_job_or_one_group_fewer(example):
    example.write_text(EXAMPLE.replace("count: 2", "count: 3"), encoding="utf-8")
    problem = read_problem(example)
    result = solver.plan(problem, budget_s=0.0)
    answers = {entry.name: entry for entry in what_if(problem, result)}
    more = answers["one more job like math"]
    assert solver.verify(more.problem, more.plan).is_valid
    assert "for 4 jobs" in more.outcome
    (fewer,) = (entry for name, entry in answers.items() if name.startswith("one group fewer"))
    assert len(fewer.problem.groups) == 1
    assert fewer.plan is None
    assert fewer.outcome.startswith("No plan: jobs math and agent keep group node-0 busy")
    done = run("plan", example, "--budget", 0, "--what-if", "--json")
    assert len(json.loads(done.stdout)["what_if"]) == 4


def test_other_questions_are_answered_with_the_passes_that_were_asked_for(tmp_path):
    """A short job passes twice while a long one passes once: without that each needs a group."""
    ops = "[{name: train, duration_s: %d, wait_s: %d}]"
    text = "format: 1\ngroups: [{name: node, count: 3, memory_gb: 9}]\njobs:\n"
    for name, length in (("short", 10), ("long", 20)):
        text += f"  - {{name: {name}, slowdown_limit: 1.1, ops: {ops % (length // 5, length)}}}\n"
    (path := tmp_path / "two.yaml").write_text(text, encoding="utf-8")
    options = ["--objective", "groups", "--budget", 0, "--what-if", "--frontier", "--json"]
    data = json.loads(run("plan", path, "--passes", 4, *options).stdout)
    assert data["value"] == 1
    assert [point["value"] for point in data["frontier"]][-1] == 1
    more = next(entry for entry in data["what_if"] if entry["name"] == "one more job like short")
    passes = [len(timeline["timings"]) for timeline in more["plan"]["timelines"]]
    assert max(passes) > 2
    once = json.loads(run("plan", path, *options).stdout)
    assert once["value"] == 2


def test_names_that_look_like_markup_are_shown_as_they_are(example):
    example.write_text(EXAMPLE.replace("name: math", "name: '[/bold]'"), encoding="utf-8")
    done = run("plan", example, "--budget", 0)
    assert done.exit_code == 0
    assert "[/bold]" in done.stdout


def test_one_job_on_one_group_is_no_plural(tmp_path):
    (path := tmp_path / "one.yaml").write_text(
        EXAMPLE.replace("count: 2", "count: 1").split("  - name: agent")[0], encoding="utf-8"
    )
    done = run("plan", path, "--budget", 0)
    assert "planning 1 job on 1 group," in done.output


def test_an_impossible_problem_is_explained(example):
    example.write_text(EXAMPLE.replace("memory_gb: 490", "memory_gb: 4900"), encoding="utf-8")
    done = run("plan", example, "--json")
    assert done.exit_code == 1
    assert json.loads(done.stdout)["status"] == "infeasible"
    told = run("explain", example)
    assert told.exit_code == 0
    assert "job agent needs 4.9 TB" in told.stdout


@pytest.mark.parametrize("command", ["plan", "simulate", "explain"])
def test_a_bad_file_is_one_error_and_status_2(command, example):
    example.write_text(EXAMPLE.replace("duration_s: 60", "duration_s: .nan", 1), encoding="utf-8")
    done = run(command, example, "--json")
    assert done.exit_code == 2
    error = json.loads(done.stdout)["error"]
    assert "ops[1].duration_s is nan" in error["message"]


def test_plan_without_a_file_says_what_to_do():
    done = run("plan")
    assert done.exit_code == 2
    assert "--example" in done.output


def test_simulate_compares_rules_on_the_same_draws(example):
    done = run("simulate", example, "--cycles", 10, "--seeds", 1, "--budget", 0, "--json")
    assert done.exit_code == 0
    rows = {row["name"]: row for row in json.loads(done.stdout)["policies"]}
    assert set(rows) >= {"plan order, backfill", "strict plan", "first ready"}
    assert all(row["slowdown_worst"] >= 0.99 for row in rows.values())


def test_too_few_cycles_for_the_noise_are_told(example):
    done = run("simulate", example, "--cycles", 1, "--seeds", 1, "--budget", 0, "--wait-cv", 5)
    assert done.exit_code == 2
    assert "1 cycles are too few" in done.output
    assert "raise --cycles" in done.output


def test_too_many_iterations_are_refused():
    jobs = tuple(
        solver.Job(name, (solver.Op("train", ticks),), 0, 10**6)
        for name, ticks in (("long", 10_000), ("short", 20))
    )
    problem = solver.Problem((solver.Group("g", 1),), jobs)
    with pytest.raises(InputError, match=r"'short' would pass \d+ iterations in 9000 .* lower"):
        rehearse(problem, solver.greedy(problem), Noise(0.1, 0.1), cycles=9_000, seeds=[1])


def test_without_noise_strict_order_takes_what_the_plan_promises(example):
    problem = read_problem(example)
    plan = solver.greedy(problem)
    rows = rehearse(problem, plan, Noise(0.0, 0.0), cycles=100, seeds=[1])
    strict = next(row for row in rows if row.name == "strict plan")
    # The start-up is not part of the cycle.
    for job, slowdown in strict.slowdowns.items():
        assert slowdown <= plan.slowdowns_permille[job] / 1000 + 0.03


def test_a_looser_limit_never_saves_less(example):
    points = [p.saving for p in frontier(read_problem(example), None, 0) if p.saving is not None]
    assert points == sorted(points)
    problem = read_problem(example)
    assert 0 < saving_of(problem, solver.greedy(problem)) < 1


def test_jobs_over_several_groups_are_simulated_on_all_of_them():
    jobs = tuple(
        solver.Job(
            name,
            (solver.Op("rollout", 600, 50, 7, group=group), solver.Op("train", 300, 0, 2)),
            1,
            4000,
            pinned_group="pool",
        )
        for name, group in (("a", "r0"), ("b", "r1"))
    )
    problem = solver.Problem(tuple(solver.Group(name, 9) for name in ("pool", "r0", "r1")), jobs)
    plan = solver.greedy(problem)
    rows = rehearse(problem, plan, Noise(0.0, 0.0), cycles=50, seeds=[1])
    assert {row.name for row in rows if max(row.slowdowns.values()) < 1.02} >= {"first ready"}
    assert saving_of(problem, plan) == pytest.approx(0.25, abs=0.02)
    # Three groups do the work of two jobs that would have two each.
    assert next(row for row in rows if row.name == "first ready").saving == pytest.approx(
        0.25, abs=0.02
    )


def leases(count=4, swap_s=0.1):
    rows, now = [], 0.0
    for iteration in range(count):
        for op, held_s, wait_s in (("actor.rollout.0", 1.0, 0.5), ("actor.train.0", 0.4, 0.1)):
            rows.append(
                {
                    "run": "shared",
                    "job": "a",
                    "op": op,
                    "iteration": iteration,
                    "group": "group-0",
                    "ready_s": now,
                    "started_s": now,
                    "ended_s": now + held_s + swap_s,
                    "swap_s": swap_s,
                    "outcome": "done",
                }
            )
            now += held_s + swap_s + wait_s
    return pa.Table.from_pylist(rows)


def changed(column, value):
    table = leases()
    at = table.column_names.index(column)
    return table.set_column(at, column, pa.array([value] * table.num_rows))


def test_a_log_becomes_a_problem(tmp_path):
    pq.write_table(leases(), tmp_path / "leases.parquet")
    output = tmp_path / "problem.yaml"
    done = run("profile", tmp_path, "-o", output, "--limit", 1.5, "--memory-gb", 10)
    assert done.exit_code == 0
    (job,) = read_problem(output).jobs
    assert [op.name for op in job.ops] == ["actor.rollout.0", "actor.train.0"]
    assert [op.duration_ticks for op in job.ops] == [1000, 400]
    assert [op.wait_ticks for op in job.ops] == [500, 100]
    assert job.ops[0].switch_ticks == 100
    assert job.slowdown_limit_permille == 1500


def stale(record, lag):
    """A rollout on a group of its own, of a job that runs ahead."""
    is_rollout = "rollout" in record["op"]
    group = "group-1" if is_rollout else "group-0"
    version = record["iteration"]
    return record | {"group": group, "version": max(0, version - lag * is_rollout)}


def test_a_log_of_jobs_over_several_groups_becomes_a_problem_that_can_be_planned(tmp_path):
    rows = leases(count=6).to_pylist()
    rows = [stale(row, 2) for row in rows] + [row | {"job": "b"} for row in rows]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "leases.parquet")
    output, plan = tmp_path / "problem.yaml", tmp_path / "plan.json"
    assert run("profile", tmp_path, "-o", output).exit_code == 0
    apart, beside = read_problem(output).jobs
    assert [apart.groups_of(op) for op in apart.ops] == [("group-1",), ("group-0",)]
    assert (apart.ahead_ops, apart.staleness) == (1, 2)
    assert (beside.pinned_group, beside.is_spread, beside.staleness) == ("group-0", False, 0)
    assert run("plan", output, "--output", plan, "--budget", 0).exit_code == 0
    assert run("verify", output, plan).exit_code == 0
    assert run("simulate", output, "--plan", plan, "--cycles", 20, "--seeds", 1).exit_code == 0


def test_a_csv_log_is_read_too(tmp_path):
    table = leases().drop_columns(["run", "outcome", "swap_s"])
    pa_csv.write_csv(table, tmp_path / "log.csv")
    problem = problem_of_log(tmp_path / "log.csv", slowdown_limit=2.0, memory_gb=1.0)
    assert problem.jobs[0].ops[0].duration_ticks == 1100


@pytest.mark.parametrize(
    ("table", "words"),
    [
        (leases().drop_columns(["ready_s"]), "lacks the column 'ready_s'"),
        (leases().slice(0, 0), "has no rows"),
        (leases(count=1), "no whole iteration of job 'a'"),
        (changed("ended_s", -1.0), "ends at -1 s, no later than it starts"),
        (changed("group", None), "it has no group"),
        (changed("iteration", 0.5), "no whole number from 0"),
        (changed("iteration", -1), "no whole number from 0"),
    ],
)
def test_a_log_that_does_not_serve_says_why(tmp_path, table, words):
    pq.write_table(table, tmp_path / "leases.parquet")
    with pytest.raises(InputError, match=words):
        problem_of_log(tmp_path, slowdown_limit=2.0, memory_gb=1.0)


def test_a_folder_without_a_log_is_one_error(tmp_path):
    done = run("profile", tmp_path)
    assert done.exit_code == 2
    assert "cannot be read as a log" in done.output


def test_shapes_come_from_the_file_that_is_named(tmp_path, monkeypatch):
    assert published_shapes()["plexrl"]["jobs"].keys() == {"7B", "30B", "235B"}
    path = tmp_path / "shapes.yaml"
    path.write_text("plexrl: {}\n", encoding="utf-8")
    monkeypatch.setenv(VARIABLE, str(path))
    with pytest.raises(InputError, match="rollmux_table6 is missing"):
        published_shapes()


def test_a_log_is_checked_without_a_plan(tmp_path):
    pq.write_table(leases(), tmp_path / "leases.parquet")
    assert run("verify", tmp_path).exit_code == 0
    rows = leases().to_pylist()
    rows[3]["started_s"] = rows[2]["started_s"]
    pa_csv.write_csv(pa.Table.from_pylist(rows), tmp_path / "log.csv")
    done = run("verify", tmp_path / "log.csv", "--json")
    assert done.exit_code == 1
    assert "which op 'actor.rollout.0'" in "".join(json.loads(done.stdout)["violations"])


@pytest.mark.parametrize("option", ["--output", "--report"])
def test_files_that_cannot_be_written_are_told_before_anything_is_solved(example, tmp_path, option):
    """With an endless budget: the answer comes at once."""
    for path, words in (
        (tmp_path, "it is a folder"),
        (tmp_path / "not" / "there", "there is no folder"),
        (example, "is the problem"),
    ):
        done = run("plan", example, "--budget", 80_000, option, path)
        assert done.exit_code == 2
        assert words in " ".join(done.output.split())


def test_plan_and_page_are_two_files(example, tmp_path):
    path = tmp_path / "both"
    done = run("plan", example, "--output", path, "--report", path)
    assert done.exit_code == 2
    assert "is --output; name another file" in " ".join(done.output.split())
    assert not path.exists()
