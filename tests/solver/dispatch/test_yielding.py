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
    assert send(Ready(SHORT), 40) == (WakeAt(100),)
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


PAIR = ("group-0", "group-1")


def pooled(ref, **changes):
    return replace(ref, groups=PAIR, is_any=True, **changes)


@pytest.fixture
def pool(send):
    """The same with a second group, which another long function holds; any will do for all."""
    send(Ended("a"), 0)
    send(GroupAdded("group-1"), 0)
    for name in ("a", "c"):
        send(Ready(pooled(LONG, id=name, job=name)), 0)
        send(Started(name), 0)
    return send


def asked(out):
    return [(i.id, i.groups) for i in out if isinstance(i, Yield)]


def granted(out):
    return [(i.id, i.groups) for i in out if isinstance(i, Admit)]


def test_only_one_of_several_yields_to_what_any_group_will_do_for(pool):
    assert asked(pool(Ready(pooled(SHORT)), 200)) == [("a", ("group-0",))]
    assert asked(pool(Woke(), 300)) == []
    assert granted(pool(Yielded("a"), 310)) == [("b", ("group-0",))]
    assert asked(pool(Ready(pooled(SHORT, id="d", job="d")), 320)) == [("c", ("group-1",))]


def test_what_yielded_goes_on_where_it_is_kept_although_another_group_is_free(pool):
    pool(Ready(pooled(SHORT)), 200)
    pool(Yielded("a"), 210)
    pool(Ready(pooled(LONG, duration_ticks=790, served_ticks=210)), 210)
    assert granted(pool(Ended("c"), 220)) == []
    assert pool.arbiter.waiting(220)[0].groups == ("group-0",)
    assert granted(pool(Ended("b"), 300)) == [("a", ("group-0",))]
    pool(Started("a"), 301)
    pool(Ended("a"), 400)
    # The next of the job is bound to nothing.
    pool(Ready(pooled(SHORT)), 410)
    assert granted(pool(Ready(pooled(LONG, id="a1")), 411)) == [("a1", ("group-1",))]


def test_what_loses_what_it_kept_runs_on_any_group_from_its_beginning(pool):
    pool(Ready(pooled(SHORT)), 200)
    pool(Yielded("a"), 210)
    pool(Ready(pooled(LONG, duration_ticks=790, served_ticks=210)), 210)
    pool(GroupLost("group-0"), 220)
    assert granted(pool(Ended("c"), 230)) == [("a", ("group-1",))]
    function = pool.arbiter.holder("group-1").function
    assert (function.duration_ticks, function.served_ticks) == (1000, 0)


def test_what_comes_back_after_its_group_is_lost_is_not_bound_to_it(pool):
    pool(Ready(pooled(SHORT)), 200)
    pool(Yielded("a"), 210)
    pool(GroupLost("group-0"), 211)
    pool(Ready(pooled(LONG)), 212)
    assert granted(pool(Ended("c"), 230)) == [("a", ("group-1",))]
