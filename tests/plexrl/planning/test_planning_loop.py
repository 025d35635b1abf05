"""The planner plans when it should, with what was measured, and says what it did."""

from __future__ import annotations

import json

import pytest

import solver
from plexrl.errors import ConfigError, JobError
from plexrl.planning.config import PlanningConfig
from plexrl.planning.planner import GroupFacts, PlannedJob, Planner, solve
from plexrl.planning.problems import build_problem
from plexrl.planning.proposals import Proposal
from solver.dispatch.arbiter import Arbiter
from solver.dispatch.events import DispatchPlan, PlanAdopted
from solver.simulate import SimJob, SimOp, simulate
from solver.trace import LeaseRecord

GREEDY = PlanningConfig(budget_s=0.0)


def job(name, *, hints=(("roll", 0.3, 0.2), ("train", 0.1, 0.02)), **options):
    return PlannedJob(name, hints, **{"slowdown_limit": 4.0, **options})


def planner_with(*jobs, config=GREEDY, groups=("group-0",)):
    planner = Planner(config)
    for group in groups:
        planner.group_added(GroupFacts(group, 1000, 8))
    for entry in jobs:
        planner.job_arrived(entry)
    return planner


def plan_once(planner, now_s=0.0):
    reason = planner.due(now_s)
    assert reason is not None
    return planner.adopt(solve(planner.request(reason, now_s)), now_s)


def lease(name, op, iteration, start_s, length_s, ready_s=None):
    return LeaseRecord(
        f"{name}.{op}.{iteration}",
        name,
        "actor",
        op,
        iteration,
        iteration,
        "group-0",
        start_s if ready_s is None else ready_s,
        start_s,
        start_s + length_s,
        0.0,
        "device",
        0,
    )


def run(planner, name, iterations, *, roll_s=0.3, start_s=0.0):
    now_s = start_s
    for iteration in iterations:
        planner.observe(lease(name, "roll", iteration, now_s, roll_s))
        planner.observe(lease(name, "train", iteration, now_s + roll_s + 0.2, 0.1))
        now_s += roll_s + 0.32
    return now_s


def test_nothing_is_due_without_jobs_or_without_groups():
    planner = Planner(GREEDY)
    assert planner.due(0.0) is None
    planner.group_added(GroupFacts("group-0", 1000))
    assert planner.due(100.0) is None
    assert planner.status().status == "none"


def test_each_event_gives_its_reason_once():
    planner = planner_with(job("a"))
    assert planner.due(0.0) == "first plan"
    plan_once(planner)
    assert planner.due(1.0) is None
    planner.job_arrived(job("b"))
    assert planner.due(1.0) == "job arrived"
    plan_once(planner, 1.0)
    planner.job_left("b")
    assert planner.due(2.0) == "job left"
    plan_once(planner, 2.0)
    planner.group_added(GroupFacts("group-1", 1000))
    assert planner.due(3.0) == "group added"
    plan_once(planner, 3.0)
    planner.group_lost("group-1")
    assert planner.due(4.0) == "group lost"
    plan_once(planner, 4.0)
    assert planner.due(13.9) is None
    assert planner.due(14.0) == "period of 10 s"


def test_a_drift_is_named_with_its_size():
    planner = planner_with(job("a"))
    plan_once(planner)
    now_s = run(planner, "a", range(3))
    if planner.due(1.0):
        plan_once(planner, 1.0)
    assert planner.due(1.0) is None
    run(planner, "a", range(3, 10), roll_s=0.42, start_s=now_s)
    assert planner.due(1.0) == "drift of a:roll by 40 %"


def test_a_change_below_the_drift_fraction_is_left_to_the_period():
    planner = planner_with(job("a"))
    run(planner, "a", range(3))
    plan_once(planner)
    run(planner, "a", range(3, 10), roll_s=0.35, start_s=10.0)
    assert planner.due(1.0) is None


def test_a_job_without_hints_is_planned_once_its_first_iteration_is_over():
    planner = planner_with(job("a", hints=()))
    assert planner.due(0.0) is None
    run(planner, "a", range(1))
    assert planner.due(0.0) is None
    run(planner, "a", range(1, 2), start_s=1.0)
    assert planner.due(0.0) == "first plan"
    dispatch = plan_once(planner)
    assert {slot.op for slot in dispatch.orders["group-0"]} == {"roll", "train"}


def test_measured_lengths_reach_the_plan():
    planner = planner_with(job("a"), job("b"))
    for name in "ab":
        run(planner, name, range(4), roll_s=0.6)
    dispatch = plan_once(planner)
    ticks = {(slot.job, slot.op): slot.duration_ticks for slot in dispatch.orders["group-0"]}
    assert ticks == {
        ("a", "roll"): 600,
        ("b", "roll"): 600,
        ("a", "train"): 100,
        ("b", "train"): 100,
    }
    waits = {slot.op: slot.wait_ticks for slot in dispatch.orders["group-0"]}
    assert waits == {"roll": 200, "train": 20}


def test_status_and_json_tell_what_was_planned_and_what_came_of_it():
    planner = planner_with(job("a"), job("b"))
    plan_once(planner)
    for name in "ab":
        run(planner, name, range(5), start_s=1.0)
    plan_once(planner, 20.0)
    status = planner.status()
    assert status.is_verified
    assert status.num_solves == 2
    assert status.objective_s >= status.bound_s == pytest.approx(0.8)
    assert sorted(status.order["group-0"]) == ["a:roll", "a:train", "b:roll", "b:train"]
    told = json.loads(json.dumps(planner.plan_json()))
    first = told["history"][0]
    assert first["reason"] == "first plan"
    assert first["verified"] is True
    assert first["cycles"]["a"]["actual"]["iterations"] == 4
    assert first["cycles"]["a"]["actual"]["mean_s"] == pytest.approx(0.62)
    assert first["cycles"]["a"]["predicted_s"] == first["objective_s"]
    problem = solver.Problem.from_json(told["in_force"]["problem"])
    assert solver.verify(problem, solver.Plan.from_json(told["in_force"]["plan"])).is_valid


def test_slowdown_limits_that_cannot_hold_are_named_and_the_jobs_are_planned_all_the_same():
    planner = planner_with(*(job(name, slowdown_limit=1.1) for name in "abc"))
    dispatch = plan_once(planner)
    assert len(dispatch.orders["group-0"]) == 6
    status = planner.status()
    assert status.status == "infeasible"
    assert status.is_verified
    assert "1.1 times" in status.reason
    assert "planned without slowdown limits" in status.reason


def test_a_problem_the_solver_refuses_leaves_the_jobs_unplanned_and_says_why():
    planner = planner_with(job("a", hints=(("roll", 1e9, 0.0),)))
    assert plan_once(planner) == DispatchPlan()
    assert planner.status().status == "none"
    assert not planner.status().is_verified
    assert "roll" in planner.status().reason


def test_a_job_that_left_during_the_solve_is_not_dispatched():
    planner = planner_with(job("a"), job("b"))
    proposal = solve(planner.request(planner.due(0.0), 0.0))
    planner.job_left("b")
    dispatch = planner.adopt(proposal, 1.0)
    assert {slot.job for slot in dispatch.orders["group-0"]} == {"a"}


def test_the_arbiter_takes_the_plan():
    planner = planner_with(job("a"), job("b"))
    arbiter = Arbiter()
    arbiter.handle(PlanAdopted(plan_once(planner)), 0)
    arbiter.check()


@pytest.mark.slow
def test_the_solver_in_its_child_process_proves_the_cycle():
    planner = planner_with(job("a"), job("b"), job("c"), config=PlanningConfig(budget_s=20.0))
    plan_once(planner)
    status = planner.status()
    assert status.status == "optimal"
    assert status.bound_s == status.objective_s
    assert status.is_verified
    assert planner.plan_json()["in_force"]["seconds"] > 0


def test_the_plan_of_simulated_jobs_predicts_their_cycle():
    jobs = [
        SimJob(name, (SimOp("roll", 0.6, 0.5), SimOp("train", 0.3, 0.05)), 30) for name in "abc"
    ]
    hints = (("roll", 1.0, 0.1), ("train", 1.0, 0.1))
    planner = planner_with(*(job(entry.name, hints=hints) for entry in jobs))
    plan_once(planner)
    for record in sorted(simulate(jobs).records, key=lambda record: record.ended_s):
        planner.observe(record)
    plan = plan_once(planner, 1.0)
    result = simulate(jobs, plan)
    cycle_s = result.makespan_ticks / 30 / 1000
    assert planner.status().objective_s == pytest.approx(cycle_s, rel=0.02)


def test_jobs_go_to_the_least_busy_group_with_room():
    planner = planner_with(groups=("group-0", "group-1"))
    planner.job_arrived(job("a", memory_bytes=600))
    assert planner.placement(job("b", memory_bytes=300)).home == "group-1"
    planner.job_arrived(job("b", memory_bytes=300))
    # Both groups are as busy; only one has room.
    assert planner.placement(job("c", memory_bytes=500)).home == "group-1"


def test_a_job_keeps_its_place_and_gets_another_when_its_group_is_lost():
    planner = planner_with(job("a"), groups=("group-0", "group-1"))
    assert planner.placement(job("a")).home == "group-0"
    planner.group_lost("group-0")
    assert planner.placement(job("a")).home == "group-1"


def test_a_job_too_large_for_any_group_is_told_the_largest():
    planner = planner_with()
    with pytest.raises(JobError, match=r"'big' needs 1001 bytes.*'group-0', has 1000"):
        planner.job_arrived(job("big", memory_bytes=1001))
    assert planner.due(0.0) is None
    planner.job_left("big")


def test_a_job_for_which_nothing_is_left_is_told_what_is():
    planner = planner_with(job("a", memory_bytes=900))
    with pytest.raises(
        JobError, match=r"'b' needs 200 bytes.*100 bytes and 7 places left beside 1 job"
    ):
        planner.placement(job("b", memory_bytes=200))


def test_no_group_at_all_is_one_clear_error():
    with pytest.raises(JobError, match="no group"):
        Planner(GREEDY).placement(job("a"))


def test_leases_are_expected_as_measured_else_as_hinted_else_guessed():
    planner = planner_with(job("a"), job("b", hints=()))
    assert planner.expected_s("a", "roll", 9.0) == 0.3
    assert planner.expected_s("b", "roll", 9.0) == 9.0
    assert planner.expected_s("nobody", "roll") == 1.0
    run(planner, "a", range(4), roll_s=0.5)
    assert planner.expected_s("a", "roll", 9.0) == pytest.approx(0.5)


def test_the_order_of_next_uses_begins_with_the_op_in_hand():
    planner = planner_with(job("a"), job("b"))
    order = [(slot.job, slot.op) for slot in plan_once(planner).orders["group-0"]]
    assert planner.upcoming("group-0", *order[1]) == (*order[1:], order[0])
    assert planner.upcoming("group-0", "c", "roll") == (("c", "roll"), *order)
    planner.job_left("b")
    assert {name for name, _ in planner.upcoming("group-0", "a", "roll")} == {"a"}


def test_leases_of_unknown_jobs_are_ignored():
    planner = planner_with(job("a"))
    run(planner, "ghost", range(3))
    assert {entry.name for entry in planner.request("first plan", 0.0).jobs} == {"a"}


def test_the_plan_in_force_is_the_one_to_beat_only_while_it_fits():
    planner = planner_with(job("a"))
    plan_once(planner)
    assert planner.request("period of 10 s", 10.0).to_beat is not None
    planner.job_arrived(job("b"))
    assert planner.request("job arrived", 11.0).to_beat is None


def test_a_plan_that_fails_the_check_does_not_serve(monkeypatch):
    planner = planner_with(job("a"), job("b"))
    request = planner.request("first plan", 0.0)
    monkeypatch.setattr(
        solver, "verify", lambda _problem, _plan: solver.Verification(("made to fail",))
    )
    proposal = solve(request)
    assert proposal.plan is None
    assert not proposal.is_verified
    assert proposal.status == "none"
    assert "failed the independent check" in proposal.note


def test_weights_and_limits_reach_the_problem():
    planner = planner_with(job("a", weight=2.5, slowdown_limit=1.25, memory_bytes=7))
    request = planner.request("first plan", 0.0)
    problem = build_problem(request.jobs, request.groups)
    assert problem.job("a").weight == 2500
    assert problem.job("a").slowdown_limit_permille == 1250
    assert problem.job("a").memory_bytes == 7
    assert problem.job("a").pinned_group == "group-0"


def test_a_proposal_without_a_plan_has_no_objective():
    request = planner_with(job("a")).request("first plan", 0.0)
    empty = Proposal(request, "none", 0.0, DispatchPlan())
    assert empty.objective_s is None
    assert empty.bound_s is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"period_s": 0}, "planning.period_s is 0"),
        ({"budget_s": -1.0}, "planning.budget_s is -1.0"),
        ({"drift_fraction": float("nan")}, "planning.drift_fraction is nan"),
        ({"slack": True}, "planning.slack is True"),
        ({"max_jobs": 0}, "planning.max_jobs is 0"),
        ({"seed": 1.5}, "planning.seed is 1.5"),
    ],
)
def test_settings_out_of_range_are_refused(options, message):
    with pytest.raises(ConfigError, match=message):
        PlanningConfig(**options)


@pytest.mark.parametrize(
    "options",
    [
        {"hints": (("roll", 0.0, 0.0),)},
        {"hints": (("roll", 1.0, -1.0),)},
        {"hints": (("roll", 1.0, 0.0), ("roll", 1.0, 0.0))},
        {"memory_bytes": -1},
        {"slowdown_limit": 0.5},
        {"weight": 0.0},
    ],
)
def test_a_job_that_makes_no_sense_is_refused(options):
    with pytest.raises(JobError, match="'a'"):
        job("a", **options)
