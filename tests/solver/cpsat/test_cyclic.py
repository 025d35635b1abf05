from dataclasses import replace

import pytest
from hypothesis import given, settings

from solver.bounds import cycle_floor_ticks
from solver.cpsat.cyclic import Effort, Ending, least_span, shortest_cycle
from solver.timeline import greedy_timeline, plan_of
from solver.verify import verify
from tests.solver.instances import (
    best_cycle,
    contested,
    job,
    jobs_of_one_group,
    one_group,
    three_loops,
)

EFFORT = Effort(seconds=10.0)


def _is_valid(jobs, timeline):
    problem = one_group(*jobs)
    return verify(problem, plan_of(problem, [timeline])).is_valid


@given(jobs_of_one_group())
@settings(max_examples=40)
@pytest.mark.slow
def test_the_cycle_is_the_best_there_is(jobs):
    best = best_cycle(jobs)
    answer = shortest_cycle("g", jobs, None, EFFORT)
    assert answer.ending is Ending.OPTIMAL
    assert answer.timeline.cycle_ticks == answer.bound_ticks == best
    assert _is_valid(jobs, answer.timeline)
    baseline = greedy_timeline("g", jobs)
    assert baseline.cycle_ticks >= answer.timeline.cycle_ticks
    hinted = shortest_cycle("g", jobs, baseline, EFFORT)
    assert (hinted.ending, hinted.timeline.cycle_ticks) == (Ending.OPTIMAL, best)


@pytest.mark.slow
def test_the_solver_beats_the_greedy_timeline_where_it_is_not_optimal():
    jobs = contested()
    greedy = greedy_timeline("g", jobs)
    answer = shortest_cycle("g", jobs, greedy, EFFORT)
    assert cycle_floor_ticks(jobs) <= answer.bound_ticks == answer.timeline.cycle_ticks
    assert answer.timeline.cycle_ticks < greedy.cycle_ticks


def test_limits_that_no_cycle_keeps_are_infeasible():
    jobs = tuple(replace(j, slowdown_limit_permille=1000) for j in contested())
    assert shortest_cycle("g", jobs, None, EFFORT).ending is Ending.INFEASIBLE


def test_each_better_timeline_is_told():
    told = []
    answer = shortest_cycle("g", contested(), None, EFFORT, told.append)
    assert told[-1] == answer.timeline
    lengths = [timeline.cycle_ticks for timeline in told]
    assert lengths == sorted(lengths, reverse=True)


def test_the_same_seed_gives_the_same_timeline():
    first, second = (shortest_cycle("g", contested(), None, EFFORT) for _ in range(2))
    assert first == second


def _span(jobs, timeline):
    at = {(t.job, t.op): t.start_ticks + t.wraps * timeline.cycle_ticks for t in timeline.timings}
    return sum(
        j.weight
        * (
            at[j.id, j.ops[-1].name]
            + j.ops[-1].duration_ticks
            + j.ops[-1].wait_ticks
            - at[j.id, j.ops[0].name]
        )
        for j in jobs
    )


def test_the_span_shrinks_at_the_same_cycle():
    jobs = three_loops()
    timeline = shortest_cycle("g", jobs, None, EFFORT).timeline
    answer = least_span(jobs, timeline, EFFORT)
    assert answer.timeline.cycle_ticks == timeline.cycle_ticks
    assert _is_valid(jobs, answer.timeline)
    assert _span(jobs, answer.timeline) == answer.bound_ticks <= _span(jobs, timeline)


def test_the_heavier_job_gets_the_shorter_span():
    rivals = (job("a", (10, 5, 0), (10, 0, 0)), job("b", (10, 5, 0), (10, 0, 0)))
    for heavy in (0, 1):
        jobs = tuple(replace(j, weight=1 + 9 * (i == heavy)) for i, j in enumerate(rivals))
        timeline = shortest_cycle("g", jobs, None, EFFORT).timeline
        found = least_span(jobs, timeline, EFFORT).timeline
        spans = [_span((replace(j, weight=1),), found) for j in jobs]
        assert spans[heavy] <= spans[1 - heavy]
