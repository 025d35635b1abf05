"""The page of a plan is self-contained and shows what it was given."""

from __future__ import annotations

import pytest

from plexrl.dashboard.palette import SWAP_COLOUR
from plexrl.dashboard.plancycles import MAX_GROUPS, Alternative, PlannedSpan, cycles, span_columns
from plexrl.dashboard.planreport import GapRow, JobRow, PlanReport, write_plan_report

SPANS = (
    PlannedSpan("g", "a", "rollout", 0.0, 3.0, is_switch=False),
    PlannedSpan("g", "b", "train", 3.0, 3.5, is_switch=True),
    PlannedSpan("g", "b", "train", 3.5, 6.0, is_switch=False),
)


def page(**more):
    return write_plan_report(
        PlanReport(
            title="Plan <of> two",
            facts=(("status", "optimal & proven"),),
            spans=SPANS,
            jobs=(JobRow("a", "g", 1.0, 1.5, 6.0), JobRow("b", "g", 1.2, 1.5, 5.0)),
            gaps=(GapRow("g", "a", "rollout", 3.0, 0.83, (("b", 2.5),)),),
            overlaps={("a", "b"): 0.83},
            **more,
        )
    )


def test_a_switch_has_the_colour_of_switches():
    columns = span_columns(SPANS, {"a": "#0072b2", "b": "#e69f00"})
    assert columns["fill"][1] == SWAP_COLOUR
    assert columns["fill"][0] == "#0072b2"
    assert columns["length"] == [3.0, 0.5, 2.5]
    assert columns["what"][1] == "switch to train"


@pytest.mark.slow
def test_the_page_needs_no_network_and_escapes_what_it_is_given():
    text = page()
    assert "Plan &lt;of&gt; two" in text
    assert "optimal &amp;amp; proven" in text or "optimal &amp; proven" in text
    assert "cdn.bokeh.org" not in text


@pytest.mark.slow
def test_cost_against_bound_and_the_frontier_are_shown_where_known():
    plain = page()
    full = page(progress=((0.1, 9.0),), seconds=1.0, bound=8.0, frontier=((1.1, 0.1),))
    assert "Best plan and bound" not in plain
    assert "Best plan and bound" in full
    assert "What if every job" in full


def test_each_pool_has_a_plot_of_its_own_and_says_how_much_it_leaves_out():
    spans = [
        PlannedSpan(f"{pool}-{at}", "a", "train", 0.0, 1.0, is_switch=False, pool=pool)
        for pool, count in (("h20", 2), ("h800", MAX_GROUPS + 3))
        for at in range(count)
    ]
    titles = {"h20": "Pool h20", "h800": "Pool h800"}
    small, large = cycles(spans, (), {"a": "#0072b2"}, titles)
    assert small.y_range.factors == ["h20-1", "h20-0"]
    assert small.title.text == "Pool h20"
    assert large.title.text == f"Pool h800 ({MAX_GROUPS} of {MAX_GROUPS + 3} groups)"
    assert small.x_range is large.x_range


@pytest.mark.slow
def test_what_could_be_otherwise_is_there_to_choose():
    newcomer = PlannedSpan("g", "c", "train", 6.0, 9.0, is_switch=False)
    more = Alternative("one more job like b", "1 group for 3 jobs <now>", (*SPANS, newcomer))
    text = page(alternatives=(more, Alternative("one group fewer", "No plan: full.", ())))
    assert "What if" in text
    assert "one more job like b" in text
    assert "1 group for 3 jobs &amp;lt;now&amp;gt;" in text
    assert "one more job" not in page()
