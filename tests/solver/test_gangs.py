"""Jobs that hold several groups at once: seated, valued, paid for and checked as such."""

from __future__ import annotations

from dataclasses import replace

import pytest

from solver.arrangements import Arrangement, make_cell
from solver.cellvalue import Effort, options, slowdowns_each
from solver.policies import shortest_first
from solver.queueing import Turn
from solver.rightsizing import right_size
from solver.scoring import score_fleet
from solver.seating import Seat, seats_of, verify_seats
from solver.workloads import Role
from tests.solver.sharing import COLOCATED, POOL, SPLIT, loop

WIDE = replace(loop("wide", 40, 40, limit=2.0), rollout_width=2, train_width=3)
NARROW = loop("narrow", 40, 40, limit=2.0)
POOLED = replace(SPLIT, max_seats=2)
NAMES = {
    Role.TRAIN: [f"t{index}" for index in range(8)],
    Role.ROLLOUT: [f"r{index}" for index in range(8)],
}
EFFORT = Effort(steps=3, cycles=10, confirm_cycles=15, turn=Turn.SHORTEST_FIRST)


def test_a_gang_is_seated_on_as_many_groups_as_it_holds():
    cell = make_cell(POOLED, [WIDE, NARROW])
    assert [len(seats) for seats in cell.train_groups] == [3, 2]
    assert [len(seats) for seats in cell.rollout_groups] == [2, 2]
    assert cell.price == POOLED.own_price(WIDE) == 3 * 5.0 + 2 * 2.0
    jobs = {job.name: job for job in cell.compile(0, 100)}
    assert [(len(op.groups), op.is_any) for op in jobs["wide"].ops] == [(2, False), (3, False)]
    assert all(op.is_any for op in jobs["narrow"].ops)


def test_the_private_groups_of_a_gang_are_paid_for():
    assert make_cell(POOL, [WIDE]).price == POOL.own_price(WIDE) == 3 * 4.0 + 2 * 2.0


@pytest.mark.slow
def test_two_gangs_on_the_same_groups_take_turns():
    wide = [replace(WIDE, name=f"w{index}") for index in range(2)]
    together = make_cell(POOLED, wide, num_rollout=2, num_train=3)
    found, apart = slowdowns_each(
        [together, make_cell(POOLED, wide, num_rollout=4, num_train=6)], EFFORT
    )
    assert all(slowdown >= 1 for slowdown in found)
    assert max(apart) < 1.2 * min(found)


def test_no_option_has_fewer_groups_than_a_gang_holds():
    found = list(options(SPLIT, (NARROW, WIDE)))
    assert found
    assert min(option.num_train for option in found) == 3
    assert min(option.num_rollout for option in found) == 2


@pytest.mark.slow
@pytest.mark.parametrize("market", [POOLED, POOL, COLOCATED])
def test_gangs_share_where_that_pays_and_every_limit_is_kept(market):
    is_colocated = market.arrangement is Arrangement.COLOCATED
    wide = replace(WIDE, rollout_width=3) if is_colocated else WIDE
    waits = 80 if is_colocated else 0
    jobs = [loop(f"n{i}", 40, 40, waits, limit=2.0) for i in range(2)]
    jobs += [replace(wide, name=f"w{i}", phases=loop("", 40, 40, waits).phases) for i in range(2)]
    cells = right_size(market, jobs, dispatch=shortest_first, effort=EFFORT)
    score = score_fleet(cells, shortest_first, [77], cycles=30)
    assert score.attainment == 1.0
    assert score.price < sum(map(market.own_price, jobs))
    assert score.saving(market.dedicated_price) > 0.1
    seats = seats_of(cells, NAMES)
    assert verify_seats(market, jobs, seats, NAMES).is_valid


def test_a_gang_with_a_group_less_is_found():
    cell = make_cell(POOLED, [WIDE])
    (seat,) = seats_of([cell], NAMES)
    assert verify_seats(POOLED, [WIDE], [seat], NAMES).is_valid
    for train in (seat.train[:2], (*seat.train, "t7")):
        (told,) = verify_seats(
            POOLED, [WIDE], [Seat("wide", seat.rollout, train)], NAMES
        ).violations
        assert "it needs exactly 3 different ones" in told
