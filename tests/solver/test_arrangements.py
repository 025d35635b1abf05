"""Cells seat and price jobs, and compile the same draws whatever the arrangement."""

from __future__ import annotations

from dataclasses import replace

import pytest

from solver.arrangements import make_cell
from solver.errors import ProblemError
from solver.workloads import Places
from tests.solver.sharing import COLOCATED, POOL, SPLIT, loop

JOBS = [loop("a", 60, 30), loop("b", 50, 40), loop("c", 40, 50)]


def test_prices_count_shared_groups_once_and_private_ones_per_job():
    assert make_cell(COLOCATED, JOBS).price == 1.0
    assert make_cell(SPLIT, JOBS, num_rollout=2).price == 2 * 2.0 + 5.0
    assert make_cell(POOL, JOBS).price == 3 * 2.0 + 4.0


def test_the_longest_rollout_gets_a_group_of_its_own():
    cell = make_cell(SPLIT, JOBS, num_rollout=2)
    assert cell.rollout_groups[0] not in cell.rollout_groups[1:]
    assert cell.rollout_groups[1] == cell.rollout_groups[2]


def test_copies_of_states_go_as_far_as_memory_and_seats_allow():
    jobs = [loop("big", memory=600), *(loop(f"small{i}", memory=150) for i in range(3))]
    market = replace(SPLIT, memory_bytes=1000, max_jobs=4, max_seats=2)
    cell = make_cell(market, jobs, num_rollout=2, num_train=2)
    assert cell.fits()
    assert [len(seats) for seats in cell.train_groups] == [1, 1, 2, 2]
    assert (cell.num_rollout, cell.num_train) == (2, 2)
    wide = make_cell(replace(market, memory_bytes=None), jobs, num_rollout=3, num_train=1)
    assert [len(seats) for seats in wide.rollout_groups] == [2, 2, 2, 2]
    assert [len(seats) for seats in wide.train_groups] == [1, 1, 1, 1]


def test_memory_and_jobs_per_group_bind():
    heavy = [loop("a", memory=600), loop("b", memory=600)]
    market = replace(SPLIT, memory_bytes=1000)
    assert not make_cell(market, heavy).fits()
    assert make_cell(market, heavy, num_rollout=2, num_train=2).fits()
    assert not make_cell(replace(COLOCATED, max_jobs=2), JOBS).fits()


@pytest.mark.parametrize("market", [COLOCATED, SPLIT, POOL])
def test_every_arrangement_takes_the_same_time_alone(market):
    job = loop("a", 60, 30, wait_s=20)
    (compiled,) = make_cell(market, [job]).compile(5, 2000.0)
    (reference,) = make_cell(COLOCATED, [job]).compile(5, 2000.0)
    assert compiled.alone_ends(0) == reference.alone_ends(0)


def test_private_rollouts_are_waits_until_they_run_ahead():
    (sync,) = make_cell(POOL, [loop("a")]).compile(0, 1000.0)
    assert [op.name for op in sync.ops] == ["train"]
    (ahead,) = make_cell(replace(POOL, staleness=1), [loop("a")]).compile(0, 1000.0)
    assert [op.name for op in ahead.ops] == ["rollout", "train"]
    assert ahead.ahead_ops == 1


def test_running_ahead_hides_the_shorter_part():
    job = loop("a", 60, 30, cv=0.0)
    (ahead,) = make_cell(replace(SPLIT, staleness=1), [job]).compile(0, 6000.0)
    ends = ahead.alone_ends(0)
    assert (ends[-1] - ends[0]) / (len(ends) - 1) == 60_000


def test_a_cell_without_jobs_is_refused():
    with pytest.raises(ProblemError, match="cell of 0 jobs"):
        make_cell(SPLIT, [])


def test_rollout_groups_have_a_memory_of_their_own():
    light = [replace(loop(f"j{i}", memory=600), rollout_bytes=300) for i in range(3)]
    market = replace(SPLIT, memory_bytes=2000, rollout_bytes=1000)
    assert make_cell(market, light).fits()
    assert not make_cell(replace(market, rollout_bytes=800), light).fits()
    assert not make_cell(replace(market, memory_bytes=1700), light).fits()
    assert not make_cell(replace(market, rollout_bytes=None, memory_bytes=1700), light).fits()


def test_who_cannot_stay_pays_for_its_move_and_the_cheapest_moves_are_made():
    """Three jobs on two groups: the price of a set says what it loses at least."""
    places = {"a": "t0", "b": "t0", "c": "t1"}
    shares = {"a": 0.1, "b": 0.2, "c": 0.25}
    jobs = [
        replace(loop(name), current=Places(train=(place,)), move_share=shares[name])
        for name, place in places.items()
    ]
    assert COLOCATED.price(jobs, 1, 2) == 2
    assert COLOCATED.price(jobs, 1, 1) == pytest.approx(1.25)
    assert COLOCATED.price(jobs[1:], 1, 1) == pytest.approx(1.2)
    new = replace(jobs[0], current=Places())
    assert COLOCATED.price([new, *jobs[1:]], 1, 1) == pytest.approx(1.2)
    free = [replace(job, move_share=0.0) for job in jobs]
    assert COLOCATED.price(free, 1, 1) == 1
