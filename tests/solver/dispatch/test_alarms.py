"""Every moment is woken for, and timers are few."""

import heapq

from hypothesis import given
from hypothesis import strategies as st

from solver.dispatch.alarms import Alarms


def always(_tick, _name):
    return True


def woken(alarms, timers, wanted=always):
    """Let all timers ring in their order; (tick of the timer, moments) of each."""
    rings = []
    while timers:
        now = heapq.heappop(timers)
        rings.append((now, list(alarms.rung(now))))
        tick = alarms.uncovered(wanted)
        if tick is not None:
            heapq.heappush(timers, tick)
    return rings


@given(st.lists(st.integers(1, 1000), max_size=60))
def test_every_moment_comes_at_its_tick_by_few_timers(ticks):
    alarms, timers = Alarms(), []
    for number, tick in enumerate(ticks):
        alarms.want(tick, f"group-{number}")
        timer = alarms.uncovered(always)
        if timer is not None:
            heapq.heappush(timers, timer)
    rings = woken(alarms, timers)
    assert sorted(tick for now, moments in rings for tick, _ in moments) == sorted(ticks)
    assert all(tick == now for now, moments in rings for tick, _ in moments)
    assert len(rings) <= 2 * len(set(ticks))


def test_a_later_moment_needs_no_timer_while_one_is_out():
    alarms = Alarms()
    alarms.want(100, "a")
    assert alarms.uncovered(always) == 100
    alarms.want(200, "b")
    assert alarms.uncovered(always) is None
    assert list(alarms.rung(100)) == [(100, "a")]
    assert alarms.uncovered(always) == 200


def test_a_timer_that_rings_early_is_set_again_once():
    alarms = Alarms()
    alarms.want(100, "a")
    alarms.uncovered(always)
    assert list(alarms.rung(99)) == []
    assert alarms.uncovered(always) == 100
    assert alarms.uncovered(always) is None


def test_a_moment_nobody_waits_for_any_more_sets_no_timer():
    alarms = Alarms()
    alarms.want(100, "a")
    alarms.want(300, "b")
    assert alarms.uncovered(lambda _tick, name: name == "b") == 300
