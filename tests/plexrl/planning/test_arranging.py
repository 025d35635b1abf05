"""A job moves when another place wins more work than the move costs, and only then."""

import pytest

from plexrl.core.placement import Arrangement, Placement
from plexrl.planning.arranging import LEAST_ITERATIONS, forecast, rearrange
from plexrl.planning.config import PlanningConfig
from plexrl.planning.facts import GroupFacts, PlannedJob
from plexrl.planning.planner import Planner, solve
from plexrl.planning.profiles import OpEstimate
from solver.dispatch.events import DispatchPlan
from solver.dispatch.rules import FirstReady
from solver.simulate import SimJob, SimOp, simulate
from solver.trace import LeaseRecord

GROUPS = [GroupFacts(f"g{i}", 1000, 4) for i in range(2)]
FAST = 1e9
"""Bytes a second: moving costs next to nothing."""


def spot(name, *places, roll_s=0.4, train_s=0.4, wait_s=0.2, **options):
    home, *rollout = places
    job = PlannedJob(name, memory_bytes=100, copy_bytes=30, iterations=100, **options)
    ops = (
        OpEstimate("actor.rollout.0", roll_s, wait_s, 0.0, True),
        OpEstimate("actor.train.0", train_s, 0.0, 0.0, True),
    )
    return job, Placement.of(home, {"rollout": rollout[0]} if rollout else None), ops


def all_left(spots, iterations=100):
    return {job.name: iterations for job, _, _ in spots}


def test_a_forecast_is_what_the_simulator_with_the_real_arbiter_says():
    spots = [spot("a", "g0", "g1"), spot("b", "g0", roll_s=0.7), spot("c", "g1", wait_s=0.5)]
    found = forecast(spots)
    done = simulate(
        [
            SimJob(
                job.name,
                tuple(
                    SimOp(op.op, op.busy_s, op.wait_s, (placement.group_of_op(op.op),))
                    for op in ops
                ),
                iterations=200,
            )
            for job, placement, ops in spots
        ],
        DispatchPlan(),
        FirstReady(),
        until_s=60.0,
    )
    for name, ends in done.ends_ticks.items():
        assert found.periods_s[name] == pytest.approx(ends[-1] / len(ends) / 1000, rel=0.05)


def test_jobs_crowded_on_one_group_spread_over_both():
    spots = [spot(name, "g0") for name in "ab"]
    move = rearrange(spots, GROUPS, all_left(spots), FAST)
    assert "g1" in move.placement.groups
    assert move.gain > 0.2
    assert move.gained_s > move.cost_s


def test_what_is_spread_already_stays():
    spots = [spot("a", "g0"), spot("b", "g1")]
    assert rearrange(spots, GROUPS, all_left(spots), FAST) is None


def test_a_move_that_does_not_pay_for_itself_is_not_made():
    spots = [spot(name, "g0") for name in "ab"]
    assert rearrange(spots, GROUPS, all_left(spots, iterations=0), FAST) is None
    assert rearrange(spots, GROUPS, all_left(spots), bytes_per_s=0.1) is None


def test_only_jobs_that_may_be_moved_are():
    spots = [spot(name, "g0") for name in "ab"]
    assert rearrange(spots, GROUPS, {}, FAST) is None
    assert rearrange(spots, GROUPS, {"b": 100}, FAST).job == "b"


def test_a_fixed_arrangement_and_fixed_groups_hold():
    together = [spot(name, "g0", arrangement=Arrangement.COLOCATED) for name in "ab"]
    move = rearrange(together, GROUPS, all_left(together), FAST)
    assert move.placement == Placement("g1")
    fixed = [spot(name, "g0", pins={"train": "g0", "rollout": "g0"}) for name in "ab"]
    assert rearrange(fixed, GROUPS, all_left(fixed), FAST) is None
    private = spot("a", "g0", "g1", arrangement=Arrangement.PRIVATE_ROLLOUT)
    beside = [private, *(spot(name, "g0") for name in "bc")]
    assert rearrange(beside, GROUPS, all_left(beside), FAST) is None


def test_a_group_without_room_takes_nobody():
    spots = [spot(name, "g0") for name in "ab"]
    small = [GROUPS[0], GroupFacts("g1", 20, 4)]
    assert rearrange(spots, small, all_left(spots), FAST) is None
    copies = [GROUPS[0], GroupFacts("g1", 40, 4)]
    assert rearrange(spots, copies, all_left(spots), FAST).placement.home == "g0"


def lease(name, op, iteration, ready_s, ended_s, group):
    return LeaseRecord(
        f"{name}{op}{iteration}", name, "actor", op, iteration, iteration, group,
        ready_s, ready_s, ended_s, 0.0, "device", 0,
    )  # fmt: skip


def observed(planner, name, iterations, group="g0"):
    for iteration in range(iterations):
        start_s = iteration * 1.0
        planner.observe(lease(name, "actor.rollout.0", iteration, start_s, start_s + 0.4, group))
        planner.observe(
            lease(name, "actor.train.0", iteration, start_s + 0.6, start_s + 0.99, group)
        )


@pytest.fixture
def crowded():
    planner = Planner(PlanningConfig(budget_s=0.0))
    planner.group_added(GROUPS[0])
    for name in "ab":
        planner.job_arrived(PlannedJob(name, memory_bytes=100, copy_bytes=30, iterations=100))
        observed(planner, name, LEAST_ITERATIONS + 2)
    planner.group_added(GROUPS[1])
    return planner


def test_a_plan_says_who_should_move_and_what_it_expects(crowded):
    proposal = solve(crowded.request("group added", 10.0, FAST))
    move = proposal.rearrangement
    assert move is not None
    crowded.adopt(proposal, 10.0)
    told = crowded.plan_json()["in_force"]
    assert told["move"]["job"] == move.job
    assert told["placement"] == {"a": ["g0"], "b": ["g0"]}
    crowded.rearrange(move.job, move.placement)
    assert crowded.status().num_moves == 1
    assert crowded.due(10.0).startswith(f"{move.job} moves to")


def test_a_job_that_moved_is_seen_for_a_while_before_it_moves_again(crowded):
    move = solve(crowded.request("group added", 10.0, FAST)).rearrangement
    crowded.rearrange(move.job, move.placement)
    assert move.job not in crowded.request("again", 11.0, FAST).left


def test_a_home_changes_when_the_job_is_placed_again(crowded):
    job = PlannedJob("a", memory_bytes=100, copy_bytes=30, iterations=100)
    there = Placement.of("g1")
    crowded.rearrange("a", there)
    assert crowded.placement(job).home == "g0"
    crowded.unplace("a")
    assert crowded.placement(job) == there
    crowded.rearrange("b", Placement.of("g0", {"rollout": "g1"}))
    assert crowded.placement(PlannedJob("b")).groups == ("g0", "g1")


def test_nothing_moves_while_a_job_is_between_groups_or_unknown(crowded):
    assert crowded.request("look", 10.0, FAST).left
    crowded.unplace("b")
    assert not crowded.request("look", 10.0, FAST).left
    crowded.placement(PlannedJob("b"))
    crowded.job_arrived(PlannedJob("new", iterations=10))
    assert not crowded.request("look", 10.0, FAST).left


def test_moving_can_be_turned_off():
    planner = Planner(PlanningConfig(budget_s=0.0, is_rearranging=False))
    for group in GROUPS:
        planner.group_added(group)
    planner.job_arrived(PlannedJob("a", iterations=100))
    observed(planner, "a", LEAST_ITERATIONS + 2)
    assert not planner.request("look", 1.0).left


def test_an_engine_that_has_to_start_first_counts_for_all_who_wait_for_it():
    spots = [spot(name, "g0", engines=frozenset({"tiny"})) for name in "ab"]
    few = all_left(spots, iterations=4)
    warm = {"g1": frozenset({(True, "tiny"), (False, "tiny")})}
    cold = rearrange(spots, GROUPS, all_left(spots), FAST)
    ready = rearrange(spots, GROUPS, few, FAST, warm)
    assert rearrange(spots, GROUPS, few, FAST) is None
    assert ready is not None
    assert cold.cost_s > ready.cost_s + 4.0


def test_the_planner_knows_which_groups_had_which_engines_until_they_are_lost(crowded):
    job = PlannedJob("c", iterations=100, engines=frozenset({"tiny"}))
    crowded.job_arrived(job)
    home = crowded.placement(job).home
    assert home not in crowded.request("look", 10.0).warm
    observed(crowded, "c", 1, group=home)
    assert crowded.request("look", 10.0).warm == {home: {(True, "tiny")}}
    crowded.group_lost(home)
    assert crowded.request("look", 10.0).warm == {}


def test_among_many_groups_a_job_of_the_busiest_goes_to_an_idle_one():
    groups = [GroupFacts(f"g{i}", 1000, 4) for i in range(60)]
    spots = [spot(f"j{i}", f"g{i}") for i in range(59)]
    crowded = [*spots, spot("beside", "g17")]
    move = rearrange(crowded, groups, all_left(crowded), FAST)
    assert move.job in {"j17", "beside"}
    assert "g59" in move.placement.groups
    assert move.gain > 0.2
    assert rearrange(spots, groups[:59], all_left(spots), FAST) is None
