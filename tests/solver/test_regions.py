"""Chosen cells are planned anew without losing or doubling a job."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from solver import cellsearch, regions
from solver.cellsearch import CellSearch, Ends
from solver.cellvalue import Effort, Sizing, look_longer_each
from solver.pins import bundles
from solver.policies import shortest_first
from solver.queueing import Turn
from solver.regions import Regions
from solver.workloads import Places
from tests.solver.sharing import COLOCATED, SPLIT, loop

EFFORT = Effort(
    cycles=8, sound_cycles=10, sound_seeds=(1, 2), max_cell_jobs=3, turn=Turn.SHORTEST_FIRST
)
JOBS = [loop(f"j{i}", 15 + 4 * i, 10, 70, limit=1.5) for i in range(8)]


def begun(jobs=JOBS, market=COLOCATED):
    sizing = Sizing(market, EFFORT, market.dedicated_price)
    search = CellSearch(sizing, bundles(market, jobs), random.Random(0), Ends(None, None))
    search.begin(shortest_first)
    search.mend()
    return search


def served(search):
    return sorted(index for ids in search.chosen for index in ids)


def ratio(search):
    values = search.choice.values()
    return sum(value.cell.price for value in values) / sum(value.work for value in values)


def test_every_job_stays_served_once_and_the_ratio_does_not_get_worse():
    search = begun()
    search.chosen = [(index,) for index in range(len(JOBS))]
    before = ratio(search)
    Regions(search).improve(3)
    assert served(search) == list(range(len(JOBS)))
    assert ratio(search) < before - 0.1
    assert all(search.columns[ids].cell.jobs for ids in search.chosen)
    for ids in search.chosen:
        names = {job.name for job in search.jobs_of(ids)}
        assert names == {job.name for job in search.columns[ids].cell.jobs}


@pytest.mark.parametrize("num_bad", [1, 4])
def test_what_does_not_keep_its_limits_is_replaced_whatever_it_costs(monkeypatch, num_bad):
    search = begun()
    bad = {frozenset(j.name for j in search.jobs_of(ids)) for ids in search.chosen[:num_bad]}

    def look(cells, effort):
        values = look_longer_each(cells, effort)
        names = [frozenset(job.name for job in cell.jobs) for cell in cells]
        return [None if here in bad else v for here, v in zip(names, values, strict=True)]

    monkeypatch.setattr(cellsearch, "look_longer_each", look)
    Regions(search).improve(0)
    assert served(search) == list(range(len(JOBS)))
    chosen = {frozenset(job.name for job in search.jobs_of(ids)) for ids in search.chosen}
    assert not any(len(names) > 1 for names in chosen & bad)


def test_cells_of_more_jobs_than_a_region_has_are_regions_of_their_own(monkeypatch):
    monkeypatch.setattr(regions, "MOST_JOBS", 1)
    search = begun()
    Regions(search).improve(2)
    assert served(search) == list(range(len(JOBS)))


def test_nothing_that_is_confirmed_is_given_up_near_the_end():
    search = begun()
    search.ends = Ends(0.0, 1e12)
    before, search.confirmed = list(search.chosen), set(search.chosen)
    assert not search.ends.is_looked
    search.ends = Ends(0.0, 1e-6)
    assert search.ends.is_looked
    Regions(search).improve(3)
    assert search.chosen == before


def test_a_cell_that_was_given_up_does_not_come_back_where_pins_leave_it_fewer_groups():
    pinned = [replace(job, pinned=Places(train=("t",))) for job in JOBS[:2]]
    sizing = Sizing(SPLIT, EFFORT, SPLIT.dedicated_price)
    shapes = []
    while (value := sizing.best(pinned, 1e9)) is not None:
        shapes.append((value.cell.num_rollout, value.cell.num_train))
        sizing.ban(value.cell)
    assert len(shapes) == len(set(shapes)) > 0
