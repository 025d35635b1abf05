"""Gaps are measured where a job comes back to a group, and filled by whoever holds it meanwhile."""

from __future__ import annotations

from plexrl.cli.planner_fleet_gaps import gap_rows, overlaps
from plexrl.dashboard.plancycles import PlannedSpan


def span(group, job, start_s, end_s, *, op="train", is_switch=False):
    return PlannedSpan(group, job, op, start_s, end_s, is_switch)


SHARED = [
    span("t", "a", 0, 10),
    span("t", "b", 12, 20),
    span("t", "a", 20, 22, is_switch=True),
    span("t", "a", 22, 30),
    span("t", "b", 30, 36),
    span("t", "a", 38, 40),
]


def test_a_gap_ends_where_the_job_is_back_and_is_told_as_a_mean():
    rows = {row.job: row for row in gap_rows(SHARED)}
    a, b = rows["a"], rows["b"]
    assert (a.group, a.after_op, a.length_s) == ("t", "train", 10.0)
    assert (a.filled_share, a.filled_by) == (0.7, (("b", 7.0),))
    assert (b.length_s, b.filled_by) == (10.0, (("a", 8.0),))


def test_nobody_fills_the_gaps_of_a_group_of_its_own():
    row, other = gap_rows([*SHARED, span("r", "a", 0, 5), span("r", "a", 20, 25)])[:2]
    assert (row.group, row.length_s, row.filled_share, row.filled_by) == ("r", 15.0, 0.0, ())
    assert other.group == "t"


def test_what_goes_on_without_a_pause_is_no_gap():
    assert gap_rows([span("t", "a", 0, 4, op="logprob"), span("t", "a", 4, 9)]) == ()


def test_overlaps_count_all_groups_together():
    found = overlaps(
        [*SHARED, span("u", "a", 0, 10), span("u", "c", 10, 20), span("u", "a", 20, 30)]
    )
    assert found == {("a", "b"): 14 / 30, ("a", "c"): 10 / 30, ("b", "a"): 0.8}
