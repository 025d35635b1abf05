"""Bars, gaps and overlaps of a plan add up to its cycle."""

from __future__ import annotations

from itertools import pairwise

import pytest

import solver
from solver import report
from solver.problem import Group, Job, Op, Problem


def job(name, busy, wait, switch=0):
    return Job(name, (Op("roll", busy, wait, switch),), 0)


PROBLEM = Problem((Group("g", 1),), (job("a", 300, 700, 10), job("b", 600, 400, 20)))
PLAN = solver.greedy(PROBLEM)


def test_bars_cover_what_ops_and_switches_take_and_never_overlap():
    bars = sorted(report.bars(PROBLEM, PLAN), key=lambda bar: bar.start_ticks)
    assert sum(bar.end_ticks - bar.start_ticks for bar in bars) == 300 + 600 + 10 + 20
    for before, after in pairwise(bars):
        assert before.end_ticks <= after.start_ticks
    assert bars[-1].end_ticks <= 1000


def test_a_gap_knows_who_fills_it():
    gaps = {gap.job: gap for gap in report.gaps(PROBLEM, PLAN)}
    assert gaps["a"].length_ticks == 700
    assert gaps["a"].filled == (("b", 600),)
    assert gaps["b"].length_ticks == 400
    assert gaps["b"].filled_ticks == 300


def test_overlap_is_the_filled_share_of_the_gaps():
    overlaps = report.overlaps(PROBLEM, PLAN)
    assert overlaps["a", "b"] == pytest.approx(600 / 700)
    assert overlaps["b", "a"] == pytest.approx(300 / 400)


def test_loads_say_how_full_a_group_is():
    (load,) = report.loads(PROBLEM, PLAN)
    assert load.cycle_ticks == 1000
    assert load.busy_share == pytest.approx(0.9)
    assert load.switch_ticks == 30


def test_a_job_alone_has_gaps_that_nobody_fills():
    problem = Problem((Group("g", 1),), (job("a", 300, 700),))
    plan = solver.greedy(problem)
    (gap,) = report.gaps(problem, plan)
    assert (gap.length_ticks, gap.filled) == (700, ())
    assert report.overlaps(problem, plan) == {}
