import json

import pytest

import solver
from solver.errors import PlanError
from solver.plan import Plan, Timeline, Timing
from tests.solver.instances import one_group, three_loops


def _plan():
    return solver.greedy(one_group(*three_loops()))


def test_a_plan_survives_json():
    plan = _plan()
    assert Plan.from_json(json.dumps(plan.to_json())) == plan


def test_the_order_lists_ops_by_start_and_prefetch_those_that_switch():
    timings = (Timing("b", "y", 50, 0), Timing("a", "x", 0, 0), Timing("a", "z", 20, 0))
    timeline = Timeline("g", 80, timings)
    assert timeline.order == (("a", "x"), ("a", "z"), ("b", "y"))
    assert timeline.prefetch == (("a", "x"), ("b", "y"))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": 2}, "format"),
        ({"placement": [1]}, "placement"),
        ({"timelines": {}}, "timelines"),
        ({"objective_ticks": "1"}, "objective_ticks"),
    ],
)
def test_a_malformed_plan_is_refused_with_its_path(change, message):
    with pytest.raises(PlanError, match=message):
        Plan.from_json(_plan().to_json() | change)


def test_a_written_order_that_contradicts_the_timings_is_refused():
    data = _plan().to_json()
    data["timelines"][0]["order"].reverse()
    with pytest.raises(PlanError, match=r"timelines\[0\]\.order"):
        Plan.from_json(data)


def test_two_timelines_of_one_group_are_refused():
    timeline = Timeline("g", 10, (Timing("a", "x", 0, 0),))
    with pytest.raises(PlanError, match="two timelines"):
        Plan({"a": "g"}, (timeline, timeline), {"a": 1000}, 20)


def test_a_plan_says_by_which_rule_it_is_served_and_takes_no_other():
    plan = Plan({"a": "g"}, (Timeline("g", 10, (Timing("a", "x", 0, 0),)),), {"a": 1000}, 10)
    data = plan.to_json()
    assert data["rule"] == {"name": "plan_order"}
    assert Plan.from_json(data) == plan
    with pytest.raises(PlanError, match="leave it out"):
        Plan.from_json({**data, "rule": {"name": "shortest_first"}})
