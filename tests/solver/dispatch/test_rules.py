"""Each dispatch rule decides as it says it does."""

from __future__ import annotations

import pytest

from solver.dispatch.rules import FirstReady, LargestLagFirst, PlanOrderWithBackfill
from solver.dispatch.shortest import ShortestFirst
from solver.dispatch.views import Candidate, GroupView, Hold, Planned, Run
from solver.errors import ProblemError


def candidate(job, duration=100, *, waited=0, alone=1000, bears=0):
    return Candidate(job, job, "roll", duration, 0, waited, alone, bears)


def planned(job, arrival, *, function=None, duration=100, wait=400, bears=0):
    return Planned(job, "roll", duration, wait, arrival, bears, function, 0)


def view(queue, upcoming=(), *, now=1000, free_at=None, spare=1000):
    return GroupView(
        "group-0", now, now if free_at is None else free_at, spare, tuple(queue), tuple(upcoming)
    )


def test_the_planned_op_runs_if_it_is_queued():
    rule = PlanOrderWithBackfill()
    shown = view([candidate("b"), candidate("a")], [planned("a", 900, function="a")])
    assert rule.choose(shown) == Run("a")


def test_without_a_plan_the_oldest_runs():
    assert PlanOrderWithBackfill().choose(view([candidate("b"), candidate("a")])) == Run("b")


@pytest.mark.parametrize(("slack", "expected"), [(0.5, Run("b")), (0.49, Hold(1080, "a", "roll"))])
def test_backfill_may_delay_the_planned_op_by_the_slack(slack, expected):
    # b would end 50 ticks after a's arrival at 1080 - 0; a takes 100.
    rule = PlanOrderWithBackfill(slack=slack, overdue=0.0)
    shown = view([candidate("b", 130, bears=500)], [planned("a", 1080)])
    assert rule.choose(shown) == expected


@pytest.mark.parametrize(("now", "expected"), [(1199, Hold(1200, "a", "roll")), (1200, Run("b"))])
def test_an_overdue_planned_op_is_not_waited_for(now, expected):
    rule = PlanOrderWithBackfill(slack=0.0, overdue=0.5)
    shown = view([candidate("b", 300, bears=1000)], [planned("a", 1000)], now=now)
    assert rule.choose(shown) == expected


def test_the_first_candidate_that_fits_is_let_in():
    rule = PlanOrderWithBackfill(slack=0.0, overdue=0.0)
    queue = [candidate("long", 500, bears=1000), candidate("short", 70, bears=1000)]
    assert rule.choose(view(queue, [planned("a", 1080)])) == Run("short")


def test_a_planned_job_that_bears_the_delay_is_not_waited_for():
    rule = PlanOrderWithBackfill(slack=0.0, overdue=0.0)
    queue = [candidate("b", 300, bears=1000)]
    assert rule.choose(view(queue, [planned("a", 1080, bears=219)])) == Hold(1080, "a", "roll")
    assert rule.choose(view(queue, [planned("a", 1080, bears=220)])) == Run("b")


def test_the_group_goes_on_between_jobs_that_bear_delay_alike():
    rule = PlanOrderWithBackfill(slack=0.0, overdue=0.0)
    assert rule.choose(view([candidate("b", 300)], [planned("a", 1010)])) == Run("b")


def test_a_group_that_is_the_bottleneck_does_not_stand_idle():
    rule = PlanOrderWithBackfill(slack=0.0, overdue=0.0)
    queue, upcoming = [candidate("b", 300, bears=1000)], [planned("a", 1250)]
    assert rule.choose(view(queue, upcoming, spare=1000)) == Hold(1250, "a", "roll")
    assert rule.choose(view(queue, upcoming, spare=0)) == Run("b")


def test_backfill_begins_only_when_the_group_is_free():
    rule = PlanOrderWithBackfill(slack=0.0, overdue=0.0)
    queue, upcoming = [candidate("b", 100, bears=1000)], [planned("a", 1100)]
    assert rule.choose(view(queue, upcoming)) == Run("b")
    assert rule.choose(view(queue, upcoming, free_at=1050)) == Hold(1100, "a", "roll")


def test_the_largest_lag_goes_first():
    queue = [candidate("a", waited=100, alone=1000), candidate("b", waited=90, alone=500)]
    assert LargestLagFirst().choose(view(queue)) == Run("b")


def test_first_ready_ignores_the_plan():
    shown = view([candidate("b"), candidate("a")], [planned("a", 900, function="a")])
    assert FirstReady().choose(shown) == Run("b")


@pytest.mark.parametrize(("slack", "overdue"), [(-0.1, 0.3), (0.1, float("nan"))])
def test_a_meaningless_tolerance_is_refused(slack, overdue):
    with pytest.raises(ProblemError, match="at least 0"):
        PlanOrderWithBackfill(slack=slack, overdue=overdue)


def test_short_functions_go_first_as_long_as_no_job_is_in_danger():
    rule = ShortestFirst({"long": 0.4, "short": 0.4})
    assert rule.choose(view([candidate("long", 300), candidate("short", 100)])) == Run("short")


@pytest.mark.parametrize(("waited", "expected"), [(350, "short"), (370, "long"), (401, "long")])
def test_a_job_that_nears_its_tolerance_goes_before_shorter_ones_already(waited, expected):
    # At 350 of 400 tolerated ticks its 300 count as 124 still, at 370 as 80.
    rule = ShortestFirst({"long": 0.4, "short": 0.4})
    queue = [candidate("long", 300, waited=waited), candidate("short", 100)]
    assert rule.choose(view(queue)) == Run(expected)


def test_beyond_their_tolerances_the_job_goes_first_that_exceeds_its_own_most():
    rule = ShortestFirst({"strict": 0.1, "patient": 0.5})
    queue = [candidate("patient", 10, waited=510), candidate("strict", 300, waited=120)]
    assert rule.choose(view(queue)) == Run("strict")


def test_the_smallest_share_of_an_iteration_goes_first_where_lengths_are_measured_in_them():
    rule = ShortestFirst({}, {"quick": 200, "slow": 4000})
    assert rule.choose(view([candidate("quick", 100), candidate("slow", 300)])) == Run("slow")
