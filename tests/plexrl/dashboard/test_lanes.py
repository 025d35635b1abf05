from dataclasses import replace

import pytest

from plexrl.dashboard.lanes import (
    MAX_PLANNED_BARS,
    AdoptedPlan,
    Kind,
    actual_bars,
    adopted_plan,
    function_of,
    job_bars,
    lengths,
    planned_bars,
)
from solver.problem import Group, Job, Op, Problem
from tests.plexrl.cli.made_up import lease


def plan(cycle_ticks=1000, **timing):
    row = {"job": "a", "op": "actor.rollout.0", "start_ticks": 100, "wraps": 0, **timing}
    return {"timelines": [{"group": "group-0", "cycle_ticks": cycle_ticks, "timings": [row]}]}


def test_function_is_read_from_the_op():
    assert function_of("actor.rollout.0") == "rollout"
    assert function_of("my.model.train.2") == "train"
    assert function_of("reward") == "reward"


def test_a_lease_is_a_swap_and_a_function():
    swap, held = actual_bars([lease(started=0.1, ended=1.0, swap_s=0.1)])
    assert (swap.kind, swap.start_s, swap.end_s) == (Kind.SWAP, 0.1, 0.2)
    assert (held.kind, held.start_s, held.end_s) == (Kind.HELD, 0.2, 1.0)
    assert held.lane == "group-0"


def test_no_bar_stands_for_a_swap_that_was_not_needed():
    bars = actual_bars([lease(swap_s=0.0, swap_source="device")])
    assert [bar.kind for bar in bars] == [Kind.HELD]


def test_a_job_is_queued_holds_and_is_apart():
    bars = job_bars(
        [
            lease(ready=0.0, started=0.5, ended=1.0),
            lease(op="actor.train.0", ready=1.4, started=1.4, ended=2.0),
        ]
    )
    spans = sorted((bar.start_s, bar.end_s, bar.kind) for bar in bars)
    assert spans == [
        (0.0, 0.5, Kind.QUEUED),
        (0.5, 1.0, Kind.HELD),
        (1.0, 1.4, Kind.APART),
        (1.4, 2.0, Kind.HELD),
    ]


def test_a_job_that_samples_ahead_has_two_lanes_and_is_not_apart_meanwhile():
    rollouts = lease(ready=0.0, started=0.0, ended=3.0), lease(ready=4.0, started=4.0, ended=5.0)
    train = replace(lease(op="actor.train.0", ready=1.0, started=1.0, ended=2.0), group="group-1")
    bars = job_bars([*rollouts, train])
    apart = [(bar.lane, bar.start_s, bar.end_s) for bar in bars if bar.kind is Kind.APART]
    assert apart == [("a on group-0", 3.0, 4.0)]
    held = {bar.lane: bar.function for bar in bars if bar.kind is Kind.HELD}
    assert held == {"a on group-0": "rollout", "a on group-1": "train"}


def test_a_job_that_does_one_after_the_other_on_two_groups_has_one_lane():
    rollout = lease(ready=0.0, started=0.0, ended=1.0)
    gang = lease(op="actor.sync.0", ready=1.0, started=1.0, ended=2.0)
    bars = job_bars([rollout, gang, replace(gang, group="group-1")])
    assert {bar.lane for bar in bars} == {"a"}


def test_a_plan_repeats_its_cycle_while_it_is_in_force():
    bars = planned_bars([AdoptedPlan(5.0, plan())], {("a", "actor.rollout.0"): 0.3}, until_s=7.0)
    assert [bar.start_s for bar in bars] == pytest.approx([5.1, 6.1])
    assert bars[0].end_s == pytest.approx(5.4)


def test_a_plan_ends_where_the_next_begins():
    plans = [AdoptedPlan(0.0, plan()), AdoptedPlan(1.5, plan(cycle_ticks=10_000))]
    bars = planned_bars(plans, {("a", "actor.rollout.0"): 0.3}, until_s=4.0)
    assert [bar.start_s for bar in bars] == pytest.approx([0.1, 1.1, 1.6])


def test_a_planned_length_comes_before_a_measured_one():
    told = {
        "in_force": {
            "plan": plan(),
            "problem": {
                "jobs": [{"id": "a", "ops": [{"name": "actor.rollout.0", "duration_ticks": 50}]}]
            },
        }
    }
    adopted = adopted_plan(told, 2.0)
    assert adopted.adopted_s == 2.0
    bars = planned_bars([adopted], {("a", "actor.rollout.0"): 9.0}, until_s=3.0)
    assert bars[0].end_s - bars[0].start_s == pytest.approx(0.05)


def test_groups_that_follow_no_order_have_no_planned_lane():
    lines = [{**line, "group": name} for name in "gh" for line in plan()["timelines"]]
    told = {"in_force": {"plan": {"timelines": lines}, "ordered": ["h"]}}
    bars = planned_bars([adopted_plan(told, 0.0)], {("a", "actor.rollout.0"): 0.3}, until_s=3.0)
    assert {bar.lane for bar in bars} == {"h"}


@pytest.mark.parametrize("told", [{}, {"in_force": None}, {"in_force": {"plan": None}}])
def test_without_a_plan_in_force_there_is_none(told):
    assert adopted_plan(told, 0.0).plan == {}


def test_planned_bars_are_bounded():
    lengths_s = {("a", "actor.rollout.0"): 0.001}
    bars = planned_bars([AdoptedPlan(0.0, plan(1))], lengths_s, until_s=1e4)
    assert len(bars) <= MAX_PLANNED_BARS


@pytest.mark.parametrize("broken", [{}, {"timelines": None}, plan(cycle_ticks=0)])
def test_a_plan_without_a_timeline_has_no_bars(broken):
    assert planned_bars([AdoptedPlan(0.0, broken)], {}, until_s=9.0) == []


def test_lengths_are_medians():
    leases = [lease(started=0, ended=end) for end in (1.0, 2.0, 9.0)]
    assert lengths(leases) == {("a", "actor.rollout.0"): 2.0}


def test_a_plan_from_the_planner_itself_brings_its_lengths():
    group = Group("g", memory_bytes=10, max_jobs=2)
    jobs = [
        Job("a", (Op("actor.rollout.0", 1500, 0, 0),), memory_bytes=1, slowdown_limit_permille=3000)
    ]
    problem = Problem((group,), tuple(jobs)).to_json()
    adopted = adopted_plan({"in_force": {"plan": {}, "problem": problem}}, 3.0)
    assert adopted.lengths_s == {("a", "actor.rollout.0"): 1.5}
