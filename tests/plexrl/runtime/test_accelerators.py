"""Devices a process may use, and how they are shared out."""

import pytest

from plexrl.runtime.accelerators import VISIBLE, share_out, visible_devices


@pytest.mark.parametrize(
    ("named", "devices"),
    [
        ("0,1", ("0", "1")),
        (" GPU-3a ,2", ("GPU-3a", "2")),
        ("", ()),
        ("NoDevFiles", ()),
        ("1,-1,2", ("1",)),
    ],
)
def test_the_environment_says_which_devices_are_ours(named, devices):
    assert visible_devices({VISIBLE: named}) == devices


def test_devices_are_shared_out_evenly_and_each_goes_to_one_group():
    assert share_out("01234", 2) == (("0", "1", "2"), ("3", "4"))
    assert share_out("0123", 4) == (("0",), ("1",), ("2",), ("3",))
    assert share_out((), 2) == ((), ())


def test_more_groups_than_devices_share_them():
    assert share_out("01", 3) == (("0",), ("1",), ("0",))


def test_no_group_is_refused():
    with pytest.raises(ValueError, match="among 0 groups"):
        share_out("0", 0)
