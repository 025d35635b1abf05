"""Cells get groups by name, and every broken seat is found."""

from __future__ import annotations

from dataclasses import replace

import pytest

from solver.arrangements import make_cell
from solver.errors import PlanError
from solver.seating import Seat, cells_of, num_needed, seats_of, verify_seats
from solver.workloads import Role
from tests.solver.sharing import COLOCATED, POOL, SPLIT, loop

JOBS = [loop(f"j{index}", memory=400) for index in range(5)]
NAMES = {Role.ROLLOUT: ("r0", "r1", "r2", "r3", "r4"), Role.TRAIN: ("t0", "t1", "t2")}
MARKET = replace(SPLIT, memory_bytes=1000, max_jobs=4, max_seats=2)


def seated(market=MARKET):
    cells = [
        make_cell(market, JOBS[:2]),
        make_cell(market, JOBS[2:], num_rollout=2, num_train=2),
    ]
    return seats_of(cells, NAMES)


@pytest.mark.parametrize("market", [MARKET, replace(COLOCATED, memory_bytes=1000)])
def test_cells_share_no_group_and_pass_the_check(market):
    seats = seated(market)
    assert verify_seats(market, JOBS, seats, NAMES).is_valid
    first = {group for seat in seats[:2] for group in (*seat.rollout, *seat.train)}
    rest = {group for seat in seats[2:] for group in (*seat.rollout, *seat.train)}
    assert not first & rest


def test_private_rollouts_get_a_group_each():
    seats = seats_of([make_cell(POOL, JOBS)], NAMES)
    assert [seat.rollout for seat in seats] == [(name,) for name in NAMES[Role.ROLLOUT]]
    assert verify_seats(POOL, JOBS, seats, NAMES).is_valid
    two_in_one = (replace(seats[0], rollout=("r1",)), *seats[1:])
    assert (
        "carries 2 jobs; it may carry 1"
        in verify_seats(POOL, JOBS, two_in_one, NAMES).violations[0]
    )


def test_groups_are_named_so_that_most_jobs_stay():
    """Where one job comes over, both groups keep their names; a group that is gone gives none."""
    cells = [make_cell(COLOCATED, JOBS[:2]), make_cell(COLOCATED, JOBS[2:])]
    names = {Role.TRAIN: ("t0", "t1", "t2")}
    before = [Seat(f"j{index}", (group,), (group,)) for index, group in enumerate("xxyyy")]
    before = [replace(seat, train=({"x": "t2", "y": "t0"}[seat.train[0]],)) for seat in before]
    seats = seats_of(cells, names, before)
    assert [seat.train for seat in seats] == [seat.train for seat in before]
    moved = [*before[:4], Seat("j4", ("t2",), ("t2",))]
    assert [seat.train[0] for seat in seats_of(cells, names, moved)] == ["t2"] * 2 + ["t0"] * 3
    gone = [Seat(job.name, ("t9",), ("t9",)) for job in JOBS]
    assert [seat.train[0] for seat in seats_of(cells, names, gone)] == ["t0"] * 2 + ["t1"] * 3


def test_groups_are_named_so_that_the_dearest_move_is_not_made():
    shares = (0.1, 0.1, 0.5)
    jobs = [replace(job, move_share=share) for job, share in zip(JOBS, shares, strict=False)]
    before = [
        Seat(f"j{index}", (group,), (group,)) for index, group in enumerate(("t0", "t0", "t2"))
    ]
    (train,) = {seat.train for seat in seats_of([make_cell(COLOCATED, jobs)], NAMES, before)}
    assert train == ("t2",)


@pytest.mark.parametrize("market", [MARKET, COLOCATED, POOL])
def test_cells_are_found_again_from_their_seats(market):
    cells = [make_cell(market, JOBS[:2]), make_cell(market, JOBS[2:], num_rollout=2, num_train=2)]
    seats = seats_of(cells, NAMES if market is not COLOCATED else {Role.TRAIN: NAMES[Role.TRAIN]})
    again = cells_of(market, JOBS, seats)
    parts = sorted({seat.train for seat in seats})
    assert sum(cell.price for cell in again) == sum(cell.price for cell in cells)
    assert sorted(train for cell in again for train in set(cell.train_groups)) == parts
    assert num_needed(again, Role.TRAIN) == num_needed(cells, Role.TRAIN)


def test_fewer_groups_than_cells_need_are_counted():
    with pytest.raises(PlanError, match=r"need 3 train groups .* there are 2"):
        seats_of(
            [make_cell(MARKET, [job]) for job in JOBS[:3]], {**NAMES, Role.TRAIN: ("t0", "t1")}
        )


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"train": ()}, "it needs 1 to 2 different ones"),
        ({"train": ("t1", "t1")}, "it needs 1 to 2 different ones"),
        ({"train": ("t9",)}, "'t9', which is no group for train"),
        ({"rollout": ("t1",)}, "'t1', which is no group for rollout"),
        ({"train": ("t1", "t2")}, "need 1200 bytes; it has 1000"),
        ({"job": "j1"}, "seated twice"),
        ({"job": "zoe"}, "none of the file"),
    ],
)
def test_a_broken_seat_is_found(change, words):
    seats = seated()
    found = verify_seats(MARKET, JOBS, (replace(seats[0], **change), *seats[1:]), NAMES)
    assert any(words in violation for violation in found.violations)
