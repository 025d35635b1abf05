"""The way of a job off its group, as data."""

import pytest

from plexrl.core.relocations import Aim, RelocationTable, Step
from plexrl.errors import PlexRLError


def on_its_way(aim=Aim.MOVE, target=""):
    table = RelocationTable()
    table.ask("a", aim, "repair", target)
    table.stepped_aside("a", frozenset({"g", "h"}))
    return table


def test_every_step_says_what_comes_next_and_why():
    table = RelocationTable()
    assert str(table.ask("a", Aim.PAUSE, "repair")) == "pauses after its iteration (repair)"
    assert "once g, h wrote its states" in str(table.stepped_aside("a", frozenset({"g", "h"})))
    table.ask("a", Aim.MOVE, "", "k")
    table.wait("a", "k is full")
    assert str(table.get("a")) == "goes on, on k, once there is room (k is full)"


def test_a_job_is_off_only_when_every_group_let_go():
    table = on_its_way()
    assert not table.let_go("a", "g")
    assert not table.let_go("a", "h", trouble="disk full")
    assert "disk full" in str(table.get("a"))
    assert table.let_go("a", "h")


def test_a_changed_aim_keeps_the_way_that_lies_behind():
    table = on_its_way(Aim.MOVE, "k")
    row = table.ask("a", Aim.PAUSE, "after all")
    assert (row.step, row.holders) == (Step.LETTING_GO, {"g", "h"})
    assert (row.aim, row.target) == (Aim.PAUSE, "")


def test_a_resting_job_remembers_why_until_it_goes_on():
    table = on_its_way(Aim.PAUSE)
    table.rest("a")
    assert "a" not in table
    assert table.why_resting("a") == "repair"
    table.ask("a", Aim.MOVE, "unpaused")
    table.end("a")
    assert not table.why_resting("a")


def test_nobody_steps_aside_twice():
    with pytest.raises(PlexRLError, match=r"is letting go and cannot be letting go"):
        on_its_way().stepped_aside("a", frozenset())
