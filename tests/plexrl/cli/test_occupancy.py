import pytest

from plexrl.cli.occupancy import BusyWindow, since_start
from tests.plexrl.cli.made_up import group, snapshot


def shares(window, now_s, busy_s):
    return window.add(snapshot(now_s, groups=(group(busy_s),)))["group-0"]


def test_recent_share_forgets_what_lies_before_the_window():
    window = BusyWindow(window_s=10.0)
    shares(window, 0.0, 0.0)
    shares(window, 10.0, 10.0)
    found = shares(window, 20.0, 10.0)
    assert found.recent == 0.0
    assert found.total == pytest.approx(0.5)


def test_first_snapshot_has_no_share():
    assert shares(BusyWindow(), 5.0, 3.0).total is None


def test_one_snapshot_tells_the_share_since_the_cluster_began():
    found = since_start(snapshot(10.0, groups=(group(4.0),)))["group-0"]
    assert (found.recent, found.total) == (None, pytest.approx(0.4))


def test_shares_stay_between_zero_and_one():
    window = BusyWindow()
    shares(window, 0.0, 0.0)
    assert shares(window, 1.0, 4.0).recent == 1.0


def test_memory_is_bounded_by_the_window():
    window = BusyWindow(window_s=1.0)
    for step in range(1000):
        shares(window, step * 0.1, 0.0)
    assert len(window._samples) <= 12
