"""Right-sizing finds what pays, keeps limits on draws it never saw, and is deterministic."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from itertools import combinations

import pytest

from solver import cellsearch
from solver.arrangements import make_cell
from solver.cellvalue import Demand, Effort, appraise, most_work, options
from solver.policies import planned_order, shortest_first
from solver.queueing import Turn
from solver.rightsizing import right_size
from solver.scoring import score_fleet
from tests.solver.sharing import COLOCATED, POOL, SPLIT, loop

SMALL = Effort(steps=5, cycles=12, confirm_cycles=20)
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
        patient = tuple(replace(job, slowdown_limit=9.0) for job in jobs)
        found = list(options(replace(market, max_seats=2), patient))
        assert found
        for option in found:
            value = option.value(replace(market, max_seats=2), Effort(cycles=30))
            assert value is not None
            assert value.cell.price == option.price
            assert value.work <= option.most_work * 1.02


def test_an_overloaded_cell_is_ruled_out_without_simulation():
    jobs = tuple(loop(f"j{i}", 60, 30, limit=1.5) for i in range(2))
    assert list(options(COLOCATED, jobs)) == []
    assert most_work([Demand(1.0, 1 / 1.5)] * 2, 1) is None
    assert most_work([Demand(1.0, 1 / 1.5)] * 2, 2) == 2.0


@pytest.mark.slow
def test_groups_that_keep_copies_of_states_save_more():
    jobs = [loop(f"j{i}", 40, 40, limit=1.5) for i in range(5)]
    effort = replace(SMALL, turn=Turn.SHORTEST_FIRST, margin=0.01)

    def saved(market):
        cells = right_size(market, jobs, dispatch=shortest_first, effort=effort)
        score = score_fleet(cells, shortest_first, [77], cycles=60)
        assert score.attainment == 1.0
        return score.saving(SPLIT.dedicated_price)

    assert saved(replace(SPLIT, max_seats=2)) > saved(SPLIT) + 0.01


@pytest.mark.slow
def test_by_price_alone_fewer_groups_serve():
    jobs = [loop(f"j{i}", 40, 40, limit=1.9, cv=0.05) for i in range(6)]
    effort = replace(SMALL, turn=Turn.SHORTEST_FIRST)
    cheap = replace(effort, is_by_price=True)
    by_work = right_size(SPLIT, jobs, dispatch=shortest_first, effort=effort)
    by_price = right_size(SPLIT, jobs, dispatch=shortest_first, effort=cheap)
    assert sum(cell.price for cell in by_price) <= sum(cell.price for cell in by_work)


def test_by_price_the_unit_of_prices_does_not_matter():
    effort = replace(SMALL, is_by_price=True, steps=2)
    found = [
        names(
            right_size(
                replace(COLOCATED, train_price=price),
                WAITERS,
                dispatch=planned_order,
                effort=effort,
            )
        )
        for price in (1.0, 42_240.0)
    ]
    assert found[0] == found[1]
    assert len(found[0]) < len(WAITERS)


def test_sets_that_are_known_are_tried_too():
    def num_tried(**more):
        told = []
        effort = replace(SMALL, steps=0, num_regions=0)
        right_size(
            COLOCATED,
            WAITERS,
            dispatch=planned_order,
            effort=effort,
            on_standing=told.append,
            **more,
        )
        return told[-1].num_tried

    assert num_tried(known=[{"j0", "j2", "j5"}, {"j0", "j1"}, {"j3"}]) == num_tried() + 1


def test_jobs_that_allow_no_slowdown_stay_alone():
    strict = [replace(job, slowdown_limit=1.0) for job in WAITERS[:3]]
    cells = right_size(COLOCATED, strict, dispatch=planned_order, effort=SMALL)
    assert [len(cell.jobs) for cell in cells] == [1, 1, 1]


@pytest.mark.slow
def test_an_endless_search_ends_with_its_budget_and_every_cell_used_keeps_its_limits():
    jobs = [loop(f"j{i}", 20 + i, 10, 70, limit=1.4) for i in range(12)]
    cells = right_size(
        COLOCATED, jobs, dispatch=shortest_first, effort=Effort(steps=10**6), budget_s=12.0
    )
    assert sorted(job.name for cell in cells for job in cell.jobs) == sorted(j.name for j in jobs)
    assert any(len(cell.jobs) > 1 for cell in cells)
    assert score_fleet(cells, shortest_first, [77], cycles=40).attainment == 1


@pytest.mark.slow
def test_sets_given_up_are_not_used_where_the_next_prices_come_too_late(monkeypatch):
    answers = itertools.cycle([True, True, False])
    solve = cellsearch.LinearMaster.solve
    monkeypatch.setattr(cellsearch, "look_longer_each", lambda cells, _effort: [None] * len(cells))
    monkeypatch.setattr(
        cellsearch.LinearMaster, "solve", lambda self: solve(self) if next(answers) else None
    )
    cells = right_size(COLOCATED, WAITERS[:4], dispatch=shortest_first, effort=Effort(steps=6))
    assert names(cells) == [["j0"], ["j1"], ["j2"], ["j3"]]


def test_without_an_answer_of_the_last_master_the_best_sets_serve(monkeypatch):
    monkeypatch.setattr(cellsearch.guard, "choose", lambda *_, **__: None)
    told = []
    cells = right_size(
        COLOCATED,
        WAITERS[:4],
        dispatch=shortest_first,
        effort=replace(SMALL, steps=1),
        on_standing=told.append,
    )
    assert sorted(job.name for cell in cells for job in cell.jobs) == ["j0", "j1", "j2", "j3"]
    assert sum(cell.price for cell in cells) < 4
    assert told[-1].ratio < COLOCATED.dedicated_price
    assert (told[-1].num_tried > 6, told[-1].num_missed) == (True, 0)


@pytest.mark.slow
def test_chosen_cells_that_are_planned_anew_together_cost_less():
    # Sets of three are tried only of jobs that follow each other in length: busy ones side by side.
    busy = [loop(f"a{i}", 40, 10, 50 - i, limit=1.5) for i in range(2)]
    others = [loop(f"b{i}", 12, 6, 82 + i, limit=1.5) for i in range(4)]
    ratios = []
    for num_regions in (0, 10):
        told = []
        effort = replace(SMALL, steps=0, max_cell_jobs=3, num_regions=num_regions)
        cells = right_size(
            COLOCATED,
            [*busy, *others],
            dispatch=shortest_first,
            effort=effort,
            on_standing=told.append,
        )
        assert sum(len(cell.jobs) for cell in cells) == 6
        ratios.append(told[-1].ratio)
    assert ratios[1] < ratios[0] - 0.01
