"""Problem files whose ops name pools: planned, checked, and refused where they contradict."""

from __future__ import annotations

import json
from copy import deepcopy

import pytest
import yaml
from typer.testing import CliRunner

from plexrl.cli.fleetfile import Fleet
from plexrl.cli.main import app
from plexrl.cli.planner_fleet import FleetPlan
from plexrl.cli.planner_fleet_scores import scored
from plexrl.cli.planner_fleet_views import report_of_fleet
from plexrl.cli.problemfile import read_problem
from plexrl.errors import InputError
from solver.arrangements import Arrangement
from solver.seating import Seat, cells_of
from solver.workloads import Role

JOB = {
    "slowdown_limit": 1.5,
    "memory_gb": 300,
    "rollout_memory_gb": 200,
    "ops": [
        {"name": "rollout", "pool": "h20", "duration_s": 60, "switch_s": 1, "cv": 0.2},
        {"name": "train", "pool": "h800", "duration_s": 60, "wait_s": 5, "switch_s": 4},
    ],
}
DATA = {
    "format": 1,
    "groups": [
        {"name": "roll", "pool": "h20", "count": 6, "memory_gb": 700, "price": 14.8},
        {"name": "train", "pool": "h800", "count": 6, "memory_gb": 1000, "price": 42.24},
    ],
    "jobs": [{"name": f"j{index}", **deepcopy(JOB)} for index in range(6)],
}


def write(tmp_path, **changes):
    path = tmp_path / "fleet.yaml"
    path.write_text(yaml.safe_dump(deepcopy(DATA) | changes), encoding="utf-8")
    return path


def run(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.mark.parametrize(
    ("more", "arrangement"),
    [({}, Arrangement.SPLIT), ({"private_pool": "h20"}, Arrangement.PRIVATE_ROLLOUT)],
)
def test_pools_of_ops_say_how_jobs_are_arranged(tmp_path, more, arrangement):
    fleet = read_problem(write(tmp_path, staleness=1, **more))
    assert isinstance(fleet, Fleet)
    assert (fleet.market.arrangement, fleet.market.staleness) == (arrangement, 1)
    assert fleet.names[Role.ROLLOUT] == tuple(f"roll-{index}" for index in range(6))
    job = fleet.jobs[0]
    assert [job.bytes_for(role) for role in (Role.ROLLOUT, Role.TRAIN)] == [200e9, 300e9]
    assert (job.rollout_swap_s, job.train_swap_s, job.mean_s) == (1, 4, 125)


def test_one_pool_for_all_ops_is_colocated(tmp_path):
    jobs = deepcopy(DATA["jobs"])
    for job in jobs:
        job["ops"][0]["pool"] = "h800"
    fleet = read_problem(write(tmp_path, jobs=jobs))
    assert fleet.market.arrangement is Arrangement.COLOCATED
    assert fleet.market.dedicated_price == 4224


def test_ops_may_hold_several_groups_at_once(tmp_path):
    jobs = deepcopy(DATA["jobs"])
    jobs[0]["ops"][1]["groups"] = 3
    fleet = read_problem(write(tmp_path, jobs=jobs))
    assert [(job.rollout_width, job.train_width) for job in fleet.jobs[:2]] == [(1, 3), (1, 1)]
    assert fleet.market.own_price(fleet.jobs[0]) == 1480 + 3 * 4224


@pytest.mark.slow
@pytest.mark.parametrize("more", [{}, {"private_pool": "h20"}])
def test_a_plan_shares_groups_and_passes_the_check_that_a_changed_one_fails(tmp_path, more):
    file, plan, page = write(tmp_path, **more), tmp_path / "plan.json", tmp_path / "plan.html"
    done = run("plan", file, "--budget", 60, "--output", plan, "--report", page)
    assert done.exit_code == 0, done.output
    text = page.read_text(encoding="utf-8")
    assert "Plan for 6 jobs on 2 pools" in text
    assert '"train-0"' in text
    assert ('"roll-0"' in text) == (not more)
    assert ('"roll-0 of j' in text) == bool(more)
    assert ("reserved for one job each" in text) == bool(more)
    assert "Not asked for: --what-if" in text
    assert "100.0% kept" in done.stdout
    data = json.loads(plan.read_text(encoding="utf-8"))
    assert data["saving"] > 0.1
    assert run("verify", file, plan).exit_code == 0
    trial = run("simulate", file, "--plan", plan, "--cycles", 20, "--seeds", 1, "--json")
    rows = {row["name"]: row for row in json.loads(trial.stdout)["policies"]}
    assert set(rows) == {"shortest first", "smallest share first", "first ready"}
    assert rows["shortest first"]["attainment"] == 1.0
    assert rows["shortest first"]["saving"] == pytest.approx(data["saving"], abs=0.05)
    assert "shortest op first" in done.stdout
    assert "shortest op first" in text
    assert json.loads(run("verify", file, plan, "--json").stdout)["rule"] == "shortest_first"
    assert data["rule"]["tolerances"].keys() == {f"j{index}" for index in range(6)}
    rule = deepcopy(data["rule"])
    rule["tolerances"]["j0"] = 0.9
    plan.write_text(json.dumps({**data, "rule": rule}), encoding="utf-8")
    told = run("verify", file, plan)
    assert told.exit_code == 1
    assert "tolerates a lag of 0.9 of job 'j0'; its slowdown limit makes it" in told.stdout
    for key, value in (("price", 1), ("saving", 0.99), ("slowdowns", {"j0": 9.5})):
        plan.write_text(json.dumps({**data, key: value}), encoding="utf-8")
        told = run("verify", file, plan)
        assert told.exit_code == 1
        assert "is given as" in told.stdout
    data["seats"][0]["train"] = data["seats"][0]["rollout"]
    plan.write_text(json.dumps(data), encoding="utf-8")
    told = run("verify", file, plan)
    assert told.exit_code == 1
    assert "which is no group for train" in told.stdout
    assert "is no plan of this problem" in run("simulate", file, "--plan", plan).output


@pytest.mark.slow
def test_too_few_groups_are_counted(tmp_path):
    few = [{**entry, "count": 2} for entry in DATA["groups"]]
    done = run("plan", write(tmp_path, groups=few), "--budget", 2, "--json")
    assert done.exit_code == 1
    assert "groups to keep their limits" in json.loads(done.stdout)["reason"]
    tried = run("simulate", tmp_path / "fleet.yaml", "--budget", 2)
    assert tried.exit_code == 1
    assert "error: the jobs need" in tried.output


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda d: d["jobs"][1]["ops"][0].pop("pool"), "jobs[1].ops[0].pool is None"),
        (lambda d: d["jobs"][1]["ops"][0].update(pool="h900"), "jobs[1].ops[0].pool is 'h900'"),
        (lambda d: d["jobs"][1]["ops"].reverse(), "jobs[1].ops[1].pool is 'h20'"),
        (lambda d: d["jobs"][2].update(staleness=2), "jobs[2].staleness does not go"),
        (lambda d: d["jobs"][2].update(pool="h900"), "jobs[2].pool is 'h900', which is no pool"),
        (lambda d: d["jobs"][2].update(apart_from=["j9"]), "jobs[2].apart_from[0] is 'j9'"),
        (lambda d: d["jobs"][2].update(memory_gb=1200), "job j2 needs 1.2 TB on one group"),
        (lambda d: d["jobs"][2]["ops"][1].update(groups=7), "job j2 holds 7 groups of pool h800"),
        (
            lambda d: d["jobs"][2]["ops"].insert(
                1, {"name": "logprob", "pool": "h800", "duration_s": 5, "groups": 2}
            ),
            "jobs[2].ops[2].groups is 1, that of ops[1] is 2",
        ),
        (lambda d: d.update(private_pool="h800"), "private_pool is 'h800'"),
        (lambda d: d.update(staleness=-1), "staleness is -1"),
        (lambda d: d["jobs"].append(d["jobs"][1]), "jobs has two named 'j1'"),
        (lambda d: d["jobs"][1]["ops"].append(d["jobs"][1]["ops"][1]), "jobs[1].ops has two named"),
        (lambda d: d["groups"].append(d["groups"][0]), "groups has two named 'roll-0'"),
        (
            lambda d: d["groups"].append({"name": "x", "pool": "h20", "memory_gb": 9}),
            "groups 'roll-0' and 'x' of pool 'h20' differ",
        ),
    ],
)
def test_what_contradicts_itself_is_named(tmp_path, change, words):
    data = deepcopy(DATA)
    change(data)
    with pytest.raises(InputError) as caught:
        read_problem(write(tmp_path, **data))
    assert words in str(caught.value)


def test_what_belongs_to_the_other_kind_of_file_is_refused(tmp_path):
    jobs = [{"name": "a", "ops": [{"name": "train", "duration_s": 1}]}]
    with pytest.raises(InputError, match="staleness goes with ops that name pools"):
        read_problem(write(tmp_path, jobs=jobs, staleness=1))
    assert "x cannot be read" in run("plan", write(tmp_path), "--diff", tmp_path / "x").output
    assert "--objective groups" in run("plan", write(tmp_path), "--objective", "groups").output


def test_what_no_plan_could_do_without_is_told_at_once(tmp_path):
    strict = [{**job, "slowdown_limit": 1.2} for job in DATA["jobs"]]
    for count, reason in ((1, "the states of the jobs take 1.8 TB on train groups"), (2, "busy")):
        few = [{**entry, "count": count} for entry in DATA["groups"]]
        file = write(tmp_path, groups=few, jobs=strict)
        done = run("plan", file, "--json")
        assert done.exit_code == 1
        assert json.loads(done.stdout)["status"] == "infeasible"
        told = run("explain", file, "--json")
        assert told.exit_code == 0
        assert reason in json.loads(told.stdout)["reason"]


def seats(placed):
    return {"format": 1, "seats": [{"job": j, "rollout": r, "train": t} for j, r, t in placed]}


OLD = [
    ("j0", ["roll-3"], ["train-1"]),
    ("j1", ["roll-5"], ["train-1"]),
    ("j2", ["roll-4"], ["train-4"]),
    ("gone", ["roll-2"], ["train-4"]),
]


@pytest.mark.slow
def test_a_diff_keeps_jobs_where_they_are_and_tells_who_comes_and_goes(tmp_path):
    """Two jobs share a group for good reason; a third one comes, and one is no longer there."""
    file = write(tmp_path, jobs=DATA["jobs"][:4], private_pool="h20")
    old = tmp_path / "old.json"
    old.write_text(json.dumps(seats(OLD)), encoding="utf-8")
    done = run("plan", file, "--budget", 3, "--diff", old, "--json")
    data = json.loads(done.stdout)
    rows = {row["job"]: row for row in data["changes"]}
    assert rows["gone"]["new"] is None
    assert rows["j3"]["old"] is None
    new = {seat["job"]: seat for seat in data["seats"]}
    assert [new[job]["rollout"] for job, *_ in OLD[:3]] == [rollout for _, rollout, _ in OLD[:3]]
    assert new["j0"]["train"] == new["j1"]["train"] == ["train-1"]
    (private, trained) = data["pool_changes"]
    assert (private["pool"], private["freed"], private["new_groups"]) == ("h20", ["roll-2"], 4)
    assert trained["pool"] == "h800"
    assert data["in_force"]["within_limits"] == 1.0
    old.write_text(done.stdout, encoding="utf-8")
    again = run("plan", file, "--budget", 3, "--diff", old)
    assert "Changes: none, everybody stays" in again.stdout


@pytest.mark.slow
def test_jobs_move_only_where_that_is_worth_what_moving_costs(tmp_path):
    old = tmp_path / "old.json"
    apart = [(f"j{i}", [f"roll-{i}"], [f"train-{i}"]) for i in range(4)]
    old.write_text(json.dumps(seats(apart)), encoding="utf-8")
    moved = []
    for seconds in (1, 3600):
        jobs = [{**job, "move_s": seconds} for job in DATA["jobs"][:4]]
        file = write(tmp_path, jobs=jobs, private_pool="h20", horizon_s=3600)
        data = json.loads(run("plan", file, "--budget", 3, "--diff", old, "--json").stdout)
        moved.append(len([row for row in data["changes"] if row["old"] != row["new"]]))
    assert moved[0] >= 1
    assert moved[1] == 0


@pytest.mark.slow
def test_some_jobs_move_while_those_whose_moves_cost_too_much_stay(tmp_path):
    """Two and two share best; only the two whose states are small are worth moving."""
    here = {f"j{i}": [f"roll-{i}", f"train-{i}"] for i in range(4)}
    jobs = [{**job, "move_s": 1 if i < 2 else 3600} for i, job in enumerate(DATA["jobs"][:4])]
    file = write(tmp_path, jobs=jobs, current=here, private_pool="h20", horizon_s=3600)
    done = run("plan", file, "--budget", 4, "--json")
    data = json.loads(done.stdout)
    seats = {seat["job"]: seat["train"][0] for seat in data["seats"]}
    assert (seats["j2"], seats["j3"]) == ("train-2", "train-3")
    assert {seats["j0"], seats["j1"]} == {"train-2", "train-3"}
    assert data["moves"]["num_jobs"] == 2
    assert data["moves"]["group_s"] == 2
    assert data["moves"]["price"] == pytest.approx(2 / 3600 * 42.24)
    (_, trained) = data["pool_changes"]
    assert trained["freed"] == ["train-0", "train-1"]
    shown = run("plan", file, "--budget", 4).stdout
    assert "2 jobs would move: groups serve nobody for 2 s in all" in " ".join(shown.split())


def test_questions_without_time_are_answered_from_the_plan_or_not_at_all(tmp_path):
    """A newcomer has groups of its own at once; who loses a group has to be searched a place."""
    jobs = [*DATA["jobs"][:4], {**DATA["jobs"][4], "memory_gb": 301}]
    done = run("plan", write(tmp_path, jobs=jobs), "--budget", 0, "--what-if", "--json")
    answers = {entry["name"]: entry for entry in json.loads(done.stdout)["what_if"]}
    for name in ("one more job like j0", "one more job like j4"):
        assert answers[name]["outcome"].startswith("12 groups instead of 10")
        assert answers[name]["outcome"].count("0 jobs would move") == 1
    fewer = [entry for name, entry in answers.items() if "fewer" in name]
    assert len(fewer) == 2
    for entry in fewer:
        assert entry["plan"] is None
        assert entry["outcome"].startswith("No answer: in 0 s no plan was found")
        assert "allow more with --budget" in entry["outcome"]


@pytest.mark.slow
def test_pinned_jobs_are_planned_and_checked_where_they_must_be(tmp_path):
    jobs = deepcopy(DATA["jobs"][:3])
    jobs[0]["group"], jobs[1]["group"], jobs[2]["ops"][0]["group"] = "train-5", "train-4", "roll-2"
    file, plan = write(tmp_path, jobs=jobs), tmp_path / "plan.json"
    assert run("plan", file, "--budget", 3, "--output", plan).exit_code == 0
    data = json.loads(plan.read_text(encoding="utf-8"))
    seats = {seat["job"]: seat for seat in data["seats"]}
    assert (seats["j0"]["train"], seats["j1"]["train"]) == (["train-5"], ["train-4"])
    assert seats["j2"]["rollout"] == ["roll-2"]
    assert run("verify", file, plan).exit_code == 0
    jobs[0]["group"] = "train-3"
    told = run("verify", write(tmp_path, jobs=jobs), plan)
    assert told.exit_code == 1
    assert "job 'j0' is pinned to ['train-3'], but has ['train-5']" in told.stdout


@pytest.mark.slow
def test_jobs_that_are_kept_apart_share_no_group(tmp_path):
    jobs = deepcopy(DATA["jobs"][:2])
    file, plan = write(tmp_path, jobs=jobs, private_pool="h20"), tmp_path / "plan.json"
    together = json.loads(run("plan", file, "--budget", 2, "--output", plan, "--json").stdout)
    assert together["seats"][0]["train"] == together["seats"][1]["train"]
    jobs[0]["apart_from"] = ["j1"]
    file = write(tmp_path, jobs=jobs, private_pool="h20")
    done = run("verify", file, plan)
    assert "group 'train-0' has jobs that are to be kept apart" in done.stdout
    apart = json.loads(run("plan", file, "--budget", 2, "--json").stdout)
    assert apart["seats"][0]["train"] != apart["seats"][1]["train"]


def test_a_plan_in_force_that_cannot_be_kept_is_told_with_its_reason(tmp_path):
    file, old = write(tmp_path, jobs=DATA["jobs"][:2]), tmp_path / "old.json"
    old.write_text(json.dumps(seats([("j0", ["roll-0"], ["train-9"])])), encoding="utf-8")
    done = run("plan", file, "--budget", 0, "--diff", old)
    assert done.exit_code == 0
    assert "cannot be kept: job 'j0' is on 'train-9', which is no group for train" in done.stdout
    assert "j1 (new)" in done.stdout
    old.write_text(json.dumps(seats([("x", ["roll-0"], ["train-0"])])), encoding="utf-8")
    assert (
        "none of its jobs is still there" in run("plan", file, "--budget", 0, "--diff", old).stdout
    )


@pytest.mark.slow
def test_where_groups_are_few_a_plan_with_fewer_is_found(tmp_path):
    """Each job alone has the best ratio; two groups for training serve all, only slower."""
    jobs = [
        {**deepcopy(JOB), "name": f"j{index}", "slowdown_limit": 3, "memory_gb": 100}
        for index in range(4)
    ]
    for job in jobs:
        job["ops"][0]["duration_s"] = 5
    few = [DATA["groups"][0], {**DATA["groups"][1], "count": 2}]
    file = write(tmp_path, jobs=jobs, groups=few, private_pool="h20")
    done = run("plan", file, "--budget", 10, "--json")
    assert done.exit_code == 0
    data = json.loads(done.stdout)
    assert {group for seat in data["seats"] for group in seat["train"]} == {"train-0", "train-1"}
    assert data["within_limits"] == 1.0
    assert "too few groups of pool h800" in done.stderr


def test_more_jobs_that_are_kept_apart_than_groups_are_named(tmp_path):
    jobs = [deepcopy(job) for job in DATA["jobs"][:4]]
    for job in jobs[:3]:
        job["apart_from"] = [other["name"] for other in jobs[:3] if other is not job]
    few = [DATA["groups"][0], {**DATA["groups"][1], "count": 2}]
    done = run("explain", write(tmp_path, jobs=jobs, groups=few))
    assert "j0, j1, j2 are to be kept apart and need 3 train groups; there are 2" in done.stdout


@pytest.mark.slow
def test_other_questions_are_searched_for_too(tmp_path):
    jobs = [{**job, "ops": [{**op, "cv": 0.0} for op in job["ops"]]} for job in DATA["jobs"][:2]]
    jobs = deepcopy(jobs)
    jobs[1]["ops"][0]["duration_s"] = 50
    done = run(
        "plan", write(tmp_path, jobs=jobs), "--budget", 6, "--frontier", "--what-if", "--json"
    )
    data = json.loads(done.stdout)
    assert [point["slowdown_limit"] for point in data["frontier"]] == [1.05, 1.1, 1.2, 1.3, 1.5, 2]
    assert data["frontier"][0]["num_groups"] > data["frontier"][-1]["num_groups"]
    assert [entry["name"] for entry in data["what_if"]] == [
        "one more job like j0",
        "one more job like j1",
        "one group of pool h20 fewer (roll-0 gone, idle ones unused)",
        "one group of pool h800 fewer (train-0 gone, idle ones unused)",
    ]
    assert all("instead of" in entry["outcome"] for entry in data["what_if"][:2])


@pytest.mark.slow
def test_jobs_of_utterly_different_lengths_and_endless_limits_end_in_time_too(tmp_path):
    jobs = deepcopy(DATA["jobs"])
    jobs[0]["ops"][0]["duration_s"] = 2_592_000
    assert run("plan", write(tmp_path, jobs=jobs), "--budget", 2).exit_code == 0
    patient = [{**job, "slowdown_limit": 1000} for job in DATA["jobs"]]
    assert run("plan", write(tmp_path, jobs=patient), "--budget", 2).exit_code == 0


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ([1], "has no seats"),
        ({"format": 1, "seats": "abc"}, "seats is 'abc'; give a list"),
        ({"format": 1, "seats": [5]}, "seats[0] is 5; give a mapping"),
        (
            {"format": 1, "seats": [{"job": "j0", "rollout": "roll-0", "train": ["train-0"]}]},
            "seats[0].rollout is 'roll-0'; give a list of groups",
        ),
        (
            {"format": 1, "seats": [{"job": "j0", "rollout": ["roll-0"], "train": [None]}]},
            "seats[0].train is [None]; give a list of groups",
        ),
        ({"format": 1, "seats": [], "rule": {"name": "luck"}}, "rule is {'name': 'luck'}; give"),
        (
            {"format": 1, "seats": [], "rule": {"name": "shortest_first", "tolerances": 5}},
            "rule.tolerances is 5; give a lag for each job",
        ),
    ],
)
def test_a_file_that_is_no_plan_is_told_by_its_place(tmp_path, data, words):
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps(data), encoding="utf-8")
    for command in (["verify"], ["plan", "--diff"], ["simulate", "--plan"]):
        name, *options = command
        done = run(name, write(tmp_path), *options, plan)
        assert done.exit_code == 2
        assert words in done.output


def test_loops_of_a_few_ticks_are_drawn_too(tmp_path):
    """Three iterations of them are too short a time for all jobs to end one."""
    jobs = deepcopy(DATA["jobs"])
    for job in jobs:
        for op in job["ops"]:
            op.update(duration_s=0.001, wait_s=0, switch_s=0.001)
    fleet = read_problem(write(tmp_path, jobs=jobs, private_pool="h20"))
    here = tuple(Seat(f"j{i}", (f"roll-{i}",), ("train-0",)) for i in range(5))
    cells = cells_of(fleet.market, fleet.jobs, here)
    plan = FleetPlan(cells, here, scored(cells, 5), 0.5)
    page = report_of_fleet(fleet, plan)
    assert {span.job for span in page.spans} == {f"j{i}" for i in range(5)}
