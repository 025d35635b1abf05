"""Exchanges keep every job in one of the two sets, and never give the sets there were."""

from __future__ import annotations

from solver.exchanges import exchanges


def test_every_exchange_keeps_each_job_in_one_set_of_no_more_than_the_most():
    found = list(exchanges((0, 2, 5), (1, 4), 3))
    assert len(found) == len(set(found)) == 3 + 3 * 2
    for one, other in found:
        assert sorted(one + other) == [0, 1, 2, 4, 5]
        assert max(len(one), len(other)) <= 3
        assert list(one) == sorted(one)
        assert list(other) == sorted(other)
        assert {one, other} != {(0, 2, 5), (1, 4)}


def test_the_only_job_of_a_set_may_leave_it_empty():
    found = {frozenset(pair) for pair in exchanges((3,), (1, 2), 3)}
    assert found == {frozenset(pair) for pair in [((), (1, 2, 3)), ((1,), (2, 3)), ((2,), (1, 3))]}


def test_full_sets_only_change_places():
    assert list(exchanges((0, 1), (2, 3), 2)) == [
        ((1, 2), (0, 3)),
        ((1, 3), (0, 2)),
        ((0, 2), (1, 3)),
        ((0, 3), (1, 2)),
    ]
