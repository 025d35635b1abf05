"""A long function gives its group up in the middle; how often, and to whom, is bounded."""

from dataclasses import replace

import pytest

from solver.dispatch.arbiter import Arbiter
from solver.dispatch.events import (
    Ended,
    FunctionRef,
    GroupAdded,
    GroupLost,
    Ready,
    Started,
    Withdrawn,
    Woke,
    Yielded,
)
from solver.dispatch.instructions import Admit, WakeAt, Yield
from solver.dispatch.rules import FirstReady
from solver.dispatch.yielding import YieldRule, rest_ticks
from solver.errors import DispatchError, ProblemError

RULE = YieldRule(gain=2.0, patience=0.0, quantum_ticks=100, max_yields=2)
LONG = FunctionRef("a", "a", "roll", 0, ("group-0",), 1000, is_yieldable=True)
SHORT = FunctionRef("b", "b", "train", 0, ("group-0",), 100)


@pytest.fixture
def send():
    """Sends events to an arbiter whose group is held by the long function since tick 0."""
    arbiter = Arbiter(FirstReady(), yielding=RULE)

    def send(event, now):
        out = arbiter.handle(event, now)
        arbiter.check()
        return out

    send.arbiter = arbiter
    send(GroupAdded("group-0"), 0)
    send(Ready(LONG), 0)
    send(Started("a"), 0)
    return send


def test_a_long_function_yields_to_a_short_one_once_its_quantum_is_over(send):
    assert send(Ready(SHORT), 40) == (WakeAt(980), WakeAt(100))
    out = send(Woke(), 100)
    assert out[:2] == (Yield("a", ("group-0",)), Admit("b", ("group-0",), is_ahead=True))
    send(Yielded("a"), 105)
    assert send.arbiter.holder("group-0").function == SHORT
    send(Started("b"), 106)
    send(Ready(replace(LONG, duration_ticks=895, served_ticks=105)), 107)
    assert Admit("a", ("group-0",), is_ahead=False) in send(Ended("b"), 200)


def test_a_function_asked_to_yield_may_end_instead_and_is_asked_once(send):
    assert Yield("a", ("group-0",)) in send(Ready(SHORT), 200)
    assert not any(isinstance(i, Yield) for i in send(Woke(), 300))
    send(Ended("a"), 310)
    assert send.arbiter.holder("group-0").function == SHORT


def test_it_yields_to_one_that_was_admitted_ahead_before(send):
    # At tick 990 its expected end is near, so that the short one is bound; then it is late.
    out = send(Ready(replace(SHORT, duration_ticks=400)), 990)
    assert Admit("b", ("group-0",), is_ahead=True) in out
    assert WakeAt(1600) in out
    assert send(Woke(), 1600) == (Yield("a", ("group-0",)),)


@pytest.mark.parametrize(
    "waiting",
    [
        replace(SHORT, job="a"),
        replace(SHORT, duration_ticks=10_000),
        replace(SHORT, groups=("group-0", "group-1")),
    ],
)
def test_it_does_not_yield_to_its_own_job_nor_a_longer_function_nor_a_gang(send, waiting):
    send(GroupAdded("group-1"), 1)
    out = (*send(Ready(waiting), 200), *send(Woke(), 900))
    assert not any(isinstance(instruction, Yield) for instruction in out)


def test_what_swaps_cost_counts_against_yielding():
    holder_of = Arbiter(FirstReady(), yielding=RULE)
    holder_of.handle(GroupAdded("group-0"), 0)
    holder_of.handle(Ready(replace(LONG, swap_ticks=2000)), 0)
    holder_of.handle(Started("a"), 0)
    assert not any(isinstance(i, Yield) for i in holder_of.handle(Ready(SHORT), 200))


def test_a_function_yields_only_so_often(send):
    now = 0
    for turn in range(RULE.max_yields + 1):
        now += 200
        out = send(Ready(replace(SHORT, id=f"b{turn}")), now)
        if turn == RULE.max_yields:
            assert not any(isinstance(instruction, Yield) for instruction in out)
            return
        assert Yield("a", ("group-0",)) in out
        send(Yielded("a"), now + 1)
        send(Ready(replace(LONG, served_ticks=now)), now + 2)
        send(Started(f"b{turn}"), now + 2)
        send(Ended(f"b{turn}"), now + 3)
        send(Started("a"), now + 3)


def test_the_bound_outlives_the_loss_of_the_group(send):
    send(Ready(SHORT), 200)
    send(GroupLost("group-0"), 210)
    # The worker's last word comes late.
    send(Yielded("a"), 211)
    send(Withdrawn("b"), 212)
    send(Ready(LONG), 213)
    assert send.arbiter.num_waiting("group-0") == 1


def test_only_what_was_started_can_yield(send):
    send(Ready(SHORT), 10)
    with pytest.raises(DispatchError, match="forbids yielded"):
        send(Yielded("b"), 20)


def test_a_function_past_its_expected_length_is_expected_to_take_ever_longer():
    assert [rest_ticks(100, served) for served in (0, 50, 80, 100, 1000)] == [100, 50, 40, 50, 500]


@pytest.mark.parametrize("wrong", [{"gain": 0}, {"patience": float("inf")}, {"max_yields": -1}])
def test_a_rule_out_of_range_is_refused(wrong):
    with pytest.raises(ProblemError, match="yield rule"):
        YieldRule(**wrong)
