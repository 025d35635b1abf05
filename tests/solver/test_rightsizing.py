"""Right-sizing finds what pays, keeps limits on draws it never saw, and is deterministic."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import combinations

import pytest

from solver.arrangements import make_cell
from solver.policies import lag_first, planned_order
from solver.rightsizing import Effort, appraise, most_work, right_size
from solver.scoring import score_fleet
from tests.solver.sharing import COLOCATED, POOL, SPLIT, loop

SMALL = Effort(steps=30, cycles=12, confirm_cycles=20)
WAITERS = [loop(f"j{i}", 20 + i, 10, 70, limit=1.4) for i in range(6)]


def names(cells):
    return sorted(sorted(job.name for job in cell.jobs) for cell in cells)


@pytest.mark.slow
def test_jobs_that_mostly_wait_share_and_keep_their_limits_on_unseen_draws():
    cells = right_size(COLOCATED, WAITERS, dispatch=planned_order, effort=SMALL)
    score = score_fleet(cells, planned_order, [77], cycles=40)
    assert score.num_jobs == 6
    assert score.saving(COLOCATED.dedicated_price) > 0.4
    assert score.attainment == 1.0


@pytest.mark.slow
def test_the_same_seed_gives_the_same_cells():
    first = right_size(COLOCATED, WAITERS, dispatch=planned_order, effort=SMALL, seed=3)
    again = right_size(COLOCATED, WAITERS, dispatch=planned_order, effort=SMALL, seed=3)
    assert names(first) == names(again)


def test_jobs_that_are_always_busy_stay_alone():
    busy = [loop(f"j{i}", 60, 30, limit=1.2) for i in range(3)]
    cells = right_size(COLOCATED, busy, dispatch=planned_order, effort=SMALL)
    assert names(cells) == [["j0"], ["j1"], ["j2"]]


@pytest.mark.slow
def test_no_pairing_of_four_jobs_is_cheaper_than_what_is_found():
    jobs = [loop(f"j{i}", 30 + 10 * i, 20, 60, limit=1.5, cv=0.0) for i in range(4)]
    effort = replace(SMALL, max_cell_jobs=2, margin=0.0)
    cells = right_size(COLOCATED, jobs, dispatch=planned_order, effort=effort)

    def ratio(parts):
        values = [appraise(make_cell(COLOCATED, part), effort) for part in parts]
        if None in values:
            return math.inf
        return sum(v.cell.price for v in values) / sum(v.work for v in values)

    pairings = [
        [[jobs[0], other], [job for job in jobs[1:] if job is not other]] for other in jobs[1:]
    ]
    pairings += [
        [list(pair), *([job] for job in jobs if job not in pair)] for pair in combinations(jobs, 2)
    ]
    assert ratio([list(cell.jobs) for cell in cells]) <= min(map(ratio, pairings)) + 1e-9


@pytest.mark.slow
@pytest.mark.parametrize("market", [COLOCATED, SPLIT, POOL])
def test_no_simulated_cell_does_more_work_than_the_necessary_conditions_allow(market):
    for jobs in (WAITERS[:2], WAITERS[:3], WAITERS[2:6]):
        cell = make_cell(market, jobs)
        value = appraise(cell, Effort(cycles=30, margin=-9.0))
        assert value is not None
        most = most_work(cell)
        assert most is not None
        assert value.work <= most * 1.02


def test_an_overloaded_cell_is_ruled_out_without_simulation():
    jobs = [loop(f"j{i}", 60, 30, limit=1.5) for i in range(2)]
    assert most_work(make_cell(COLOCATED, jobs)) is None


@pytest.mark.slow
def test_by_price_alone_fewer_groups_serve():
    jobs = [loop(f"j{i}", 40, 40, limit=1.9, cv=0.05) for i in range(6)]
    effort = replace(SMALL, is_lag_first=True)
    by_work = right_size(SPLIT, jobs, dispatch=lag_first, effort=effort)
    by_price = right_size(SPLIT, jobs, dispatch=lag_first, effort=replace(effort, is_by_price=True))
    assert sum(cell.price for cell in by_price) <= sum(cell.price for cell in by_work)


def test_jobs_that_allow_no_slowdown_stay_alone():
    strict = [replace(job, slowdown_limit=1.0) for job in WAITERS[:3]]
    cells = right_size(COLOCATED, strict, dispatch=planned_order, effort=SMALL)
    assert [len(cell.jobs) for cell in cells] == [1, 1, 1]
