"""The arbiter grants, orders, explains and takes back leases."""

from __future__ import annotations

import pytest

from solver.dispatch.arbiter import Arbiter, Fairness
from solver.dispatch.events import (
    DispatchPlan,
    Ended,
    FunctionRef,
    GroupAdded,
    GroupLost,
    JobLeft,
    PlanAdopted,
    Ready,
    Slot,
    Started,
    Withdrawn,
    Woke,
)
from solver.dispatch.instructions import Admit, Prefetch, WakeAt
from solver.dispatch.orders import Cursor
from solver.dispatch.rules import FirstReady
from solver.dispatch.views import Run
from solver.errors import DispatchError


class Desk:
    """An arbiter with group-0, whose invariants are checked after every event."""

    def __init__(self, *groups: str, **options) -> None:
        self.arbiter = Arbiter(**options)
        self.out: tuple[object, ...] = ()
        for group in groups or ("group-0",):
            self.send(GroupAdded(group), 0)

    def send(self, event, now):
        self.out = self.arbiter.handle(event, now)
        self.arbiter.check()
        return self.out

    def ready(self, job, op, now, *, groups=("group-0",), ticks=100, iteration=0, is_any=False):
        name = f"{job}.{op}.{iteration}"
        ref = FunctionRef(name, job, op, iteration, groups, ticks, is_any=is_any)
        return self.send(Ready(ref), now)

    def reasons(self, now):
        return {waiting.id: waiting.reason for waiting in self.arbiter.waiting(now)}


def plan(*slots, group="group-0"):
    return PlanAdopted(DispatchPlan({group: tuple(Slot(*slot) for slot in slots)}))


def admitted(out):
    return [instruction.id for instruction in out if isinstance(instruction, Admit)]


def wakes(out):
    return [instruction.tick for instruction in out if isinstance(instruction, WakeAt)]


def test_a_ready_function_is_admitted_at_once_on_a_free_group():
    desk = Desk()
    assert desk.ready("a", "roll", 5) == (Admit("a.roll.0", ("group-0",), is_ahead=False),)
    assert desk.arbiter.holder("group-0").function.job == "a"


def test_a_function_ready_before_its_group_is_admitted_when_the_group_comes():
    desk = Desk("group-1")
    assert desk.ready("a", "roll", 5) == ()
    assert desk.reasons(5) == {"a.roll.0": "group-0 is not there"}
    assert admitted(desk.send(GroupAdded("group-0"), 9)) == ["a.roll.0"]


def test_the_planned_op_is_admitted_ahead_at_once():
    desk = Desk()
    desk.send(plan(("a", "roll", 100, 0), ("b", "roll", 100, 0)), 0)
    desk.ready("a", "roll", 0)
    assert desk.ready("b", "roll", 1)[0] == Admit("b.roll.0", ("group-0",), is_ahead=True)
    assert desk.arbiter.ahead("group-0").function.id == "b.roll.0"
    assert desk.arbiter.num_waiting("group-0") == 1
    assert desk.reasons(40) == {
        "b.roll.0": "next on group-0: job a holds group-0 until about +0.1 s"
    }
    assert desk.reasons(300) == {
        "b.roll.0": "next on group-0: job a holds group-0 and should end any moment"
    }


def test_backfill_is_bound_only_shortly_before_the_lease_ends():
    desk = Desk(lead_ticks=20)
    desk.ready("a", "roll", 0)
    assert desk.ready("b", "roll", 1) == (WakeAt(80),)
    assert admitted(desk.send(Woke(), 79)) == []
    assert admitted(desk.send(Woke(), 80)) == ["b.roll.0"]


def test_a_timer_that_rings_early_is_set_again():
    desk = Desk(lead_ticks=20)
    desk.ready("a", "roll", 0)
    desk.ready("b", "roll", 1)
    assert wakes(desk.send(Woke(), 70)) == [80]


def test_what_becomes_ready_before_the_binding_and_is_planned_goes_first():
    desk = Desk(lead_ticks=20)
    desk.send(plan(("a", "roll", 100, 0), ("c", "roll", 100, 0)), 0)
    desk.ready("a", "roll", 0)
    desk.ready("b", "roll", 1)
    assert admitted(desk.ready("c", "roll", 50)) == ["c.roll.0"]


def test_with_nothing_ahead_the_end_of_a_lease_chooses_at_once():
    desk = Desk(rule=FirstReady())
    desk.ready("a", "roll", 0)
    desk.ready("b", "roll", 1)
    assert admitted(desk.send(Ended("a.roll.0"), 30)) == ["b.roll.0"]


def test_the_function_ahead_takes_over_when_the_holder_ends():
    desk = Desk()
    desk.send(plan(("a", "roll", 100, 0), ("b", "roll", 100, 0)), 0)
    desk.ready("a", "roll", 0)
    desk.ready("b", "roll", 1)
    assert admitted(desk.send(Ended("a.roll.0"), 99)) == []
    assert desk.arbiter.holder("group-0").function.id == "b.roll.0"
    assert desk.arbiter.holder("group-0").held_ticks == 99


def test_the_job_expected_next_is_prefetched_when_a_lease_starts():
    desk = Desk()
    desk.send(plan(("a", "roll", 100, 0), ("b", "roll", 100, 0), ("c", "roll", 100, 0)), 0)
    desk.ready("a", "roll", 0)
    desk.ready("c", "roll", 1)
    assert desk.send(Started("a.roll.0"), 2) == (Prefetch("group-0", "c", "roll"),)


def test_a_changed_successor_is_prefetched_when_it_is_admitted_ahead():
    desk = Desk(lead_ticks=20)
    desk.send(plan(("a", "roll", 100, 0), ("b", "roll", 100, 0)), 0)
    desk.ready("a", "roll", 0)
    desk.ready("c", "roll", 1)
    assert desk.send(Started("a.roll.0"), 2) == (Prefetch("group-0", "c", "roll"),)
    assert desk.ready("b", "roll", 3) == (
        Admit("b.roll.0", ("group-0",), is_ahead=True),
        Prefetch("group-0", "b", "roll"),
    )


def test_a_start_reported_before_the_predecessors_end_is_kept():
    desk = Desk()
    desk.send(plan(("a", "roll", 100, 0), ("b", "roll", 100, 0), ("c", "roll", 100, 0)), 0)
    desk.ready("a", "roll", 0)
    desk.ready("b", "roll", 1)
    desk.send(Started("b.roll.0"), 99)
    desk.ready("c", "roll", 99)
    out = desk.send(Ended("a.roll.0"), 100)
    assert Prefetch("group-0", "c", "roll") in out
    assert desk.arbiter.holder("group-0").is_started


def test_the_prefetch_of_a_job_for_itself_is_left_out():
    desk = Desk()
    desk.send(plan(("a", "roll", 100, 0), ("a", "train", 100, 0)), 0)
    desk.ready("a", "roll", 0)
    assert desk.send(Started("a.roll.0"), 1) == ()


def _two_iterations(desk, first, second):
    """Run two iterations of both jobs, so that the arbiter knows what follows what."""
    now = 0
    for iteration in range(2):
        for job in (first, second):
            desk.ready(job, "roll", now, iteration=iteration)
            desk.send(Started(f"{job}.roll.{iteration}"), now)
            now += 100
            desk.send(Ended(f"{job}.roll.{iteration}"), now)
    return now


def test_the_group_waits_for_a_job_that_bears_no_delay():
    desk = Desk()
    # The cycle is 500 ticks, all of them a's; b can be delayed by 340 of them.
    desk.send(plan(("a", "roll", 100, 400), ("b", "roll", 60, 100)), 0)
    now = _two_iterations(desk, "a", "b")
    assert now == 400
    # a is expected at 300 + 400; b would end 30 ticks after that.
    out = desk.ready("b", "roll", 670, iteration=2, ticks=60)
    assert wakes(out) == [820]
    assert desk.reasons(670) == {"b.roll.2": "planned after a:roll, expected in 0.0 s"}
    assert admitted(desk.ready("a", "roll", 705, iteration=2))[0] == "a.roll.2"
    assert desk.arbiter.kept_idle_ticks["group-0"] == 705 - 670


def test_backfill_runs_if_it_ends_before_the_planned_op_arrives():
    desk = Desk()
    desk.send(plan(("a", "roll", 100, 400), ("b", "roll", 60, 100)), 0)
    _two_iterations(desk, "a", "b")
    assert admitted(desk.ready("b", "roll", 640, iteration=2, ticks=60)) == ["b.roll.2"]


def test_an_overdue_planned_op_is_not_waited_for():
    desk = Desk()
    desk.send(plan(("a", "roll", 100, 400), ("b", "roll", 60, 100)), 0)
    _two_iterations(desk, "a", "b")
    desk.ready("b", "roll", 670, iteration=2, ticks=60)
    assert admitted(desk.send(Woke(), 819)) == []
    assert admitted(desk.send(Woke(), 820)) == ["b.roll.2"]


def test_a_job_that_left_is_not_waited_for():
    desk = Desk()
    desk.send(plan(("a", "roll", 100, 400), ("b", "roll", 60, 100)), 0)
    _two_iterations(desk, "a", "b")
    desk.ready("b", "roll", 670, iteration=2, ticks=60)
    assert admitted(desk.send(JobLeft("a"), 680)) == ["b.roll.2"]


def test_a_plan_that_names_unknown_jobs_and_groups_is_served_without_them():
    desk = Desk()
    orders = {
        "group-0": (Slot("ghost", "roll", 10, 0), Slot("a", "roll", 10, 0)),
        "group-9": (Slot("a", "roll", 10, 0),),
    }
    desk.send(PlanAdopted(DispatchPlan(orders)), 0)
    assert admitted(desk.ready("a", "roll", 0)) == ["a.roll.0"]


def test_an_op_of_an_iteration_that_has_not_begun_is_skipped():
    desk = Desk()
    desk.send(plan(("a", "roll", 100, 400), ("b", "roll", 60, 100)), 0)
    assert admitted(desk.ready("b", "roll", 0)) == ["b.roll.0"]


def test_reversing_the_plan_reverses_the_leases():
    def leases(*jobs):
        desk = Desk()
        desk.send(plan(*((job, "roll", 100, 0) for job in jobs)), 0)
        desk.ready("first", "roll", 0)
        for job in sorted(jobs):
            desk.ready(job, "roll", 1)
        served, now = [], 100
        desk.send(Ended("first.roll.0"), now)
        while (holder := desk.arbiter.holder("group-0")) is not None:
            served.append(holder.function.job)
            now += 100
            desk.send(Ended(holder.function.id), now)
        return served

    assert leases("a", "b", "c") == ["a", "b", "c"]
    assert leases("c", "b", "a") == ["c", "b", "a"]


def test_a_new_plan_goes_on_behind_what_was_served_last():
    desk = Desk()
    desk.ready("b", "roll", 0)
    desk.send(plan(("a", "roll", 100, 0), ("b", "roll", 100, 0), ("c", "roll", 100, 0)), 1)
    assert admitted(desk.ready("a", "roll", 2)) == []
    assert admitted(desk.ready("c", "roll", 3)) == ["c.roll.0"]


def test_the_same_key_lives_again_after_its_end():
    desk = Desk()
    desk.ready("a", "roll", 0)
    desk.send(Started("a.roll.0"), 1)
    desk.send(Ended("a.roll.0"), 2)
    assert admitted(desk.ready("a", "roll", 3)) == ["a.roll.0"]


def test_a_start_that_never_came_does_not_keep_the_group():
    desk = Desk()
    desk.ready("a", "roll", 0)
    desk.send(Ended("a.roll.0"), 2)
    assert desk.arbiter.holder("group-0") is None
    # The worker's messages were only late.
    assert desk.send(Started("a.roll.0"), 3) == ()
    assert desk.send(Ended("a.roll.0"), 4) == ()


def test_a_lost_group_ends_its_leases_and_late_news_of_them_is_dropped():
    desk = Desk()
    desk.send(plan(("a", "roll", 100, 0), ("b", "roll", 100, 0)), 0)
    desk.ready("a", "roll", 0)
    desk.send(Started("a.roll.0"), 1)
    desk.ready("b", "roll", 2)
    desk.send(GroupLost("group-0"), 3)
    assert desk.arbiter.holder("group-0") is None
    assert desk.send(Ended("a.roll.0"), 4) == ()
    assert desk.send(Started("b.roll.0"), 4) == ()
    desk.ready("a", "roll", 5)
    assert admitted(desk.send(GroupAdded("group-0"), 6)) == ["a.roll.0"]


def test_a_withdrawn_function_frees_its_place():
    desk = Desk()
    desk.send(plan(("a", "roll", 100, 0), ("b", "roll", 100, 0)), 0)
    desk.ready("a", "roll", 0)
    desk.ready("b", "roll", 1)
    desk.ready("c", "roll", 2)
    desk.send(Withdrawn("c.roll.0"), 3)
    desk.send(Withdrawn("b.roll.0"), 4)
    assert desk.arbiter.ahead("group-0") is None
    assert desk.arbiter.num_waiting("group-0") == 0


@pytest.mark.parametrize(
    ("steps", "event"),
    [
        ((), Started("a.roll.0")),
        ((), Ended("a.roll.0")),
        ((), Withdrawn("a.roll.0")),
        (("ready",), Ready(FunctionRef("a.roll.0", "a", "roll", 0, ("group-0",), 1))),
        (("ready", Started("a.roll.0")), Started("a.roll.0")),
        (("ready", Started("a.roll.0")), Withdrawn("a.roll.0")),
        (("ready", Started("a.roll.0"), Ended("a.roll.0")), Ended("a.roll.0")),
        ((), GroupAdded("group-0")),
        ((), GroupLost("group-1")),
        ((), Ready(FunctionRef("x", "a", "roll", 0, (), 1))),
        ((), Ready(FunctionRef("x", "a", "roll", 0, ("group-0", "group-0"), 1))),
    ],
)
def test_an_illegal_event_raises_and_changes_nothing(steps, event):
    desk = Desk()
    for step in steps:
        if step == "ready":
            desk.ready("a", "roll", 0)
        else:
            desk.send(step, 1)
    before = (desk.arbiter.holder("group-0"), desk.arbiter.num_waiting("group-0"))
    with pytest.raises(DispatchError):
        desk.arbiter.handle(event, 2)
    desk.arbiter.check()
    assert (desk.arbiter.holder("group-0"), desk.arbiter.num_waiting("group-0")) == before


def test_the_error_of_an_illegal_event_tells_the_history():
    desk = Desk()
    desk.ready("a", "roll", 1500)
    desk.send(Started("a.roll.0"), 1600)
    with pytest.raises(DispatchError, match=r"'a.roll.0' .* ready at 1.500 s.*started at 1.600 s"):
        desk.send(Withdrawn("a.roll.0"), 1700)


def test_a_gang_gets_all_groups_at_once_or_none():
    desk = Desk("group-0", "group-1", rule=FirstReady())
    desk.ready("a", "roll", 0, groups=("group-0",))
    desk.ready("b", "roll", 0, groups=("group-1",))
    assert admitted(desk.ready("c", "sync", 1, groups=("group-0", "group-1"))) == []
    out = desk.send(Woke(), 80)
    assert out[0] == Admit("c.sync.0", ("group-0", "group-1"), is_ahead=True)
    desk.send(Ended("a.roll.0"), 100)
    assert desk.arbiter.holder("group-0").held_ticks is None
    desk.send(Ended("b.roll.0"), 110)
    assert desk.arbiter.holder("group-0").held_ticks == 110


def test_crossing_gangs_are_served_one_after_the_other():
    desk = Desk("group-0", "group-1", rule=FirstReady())
    desk.ready("a", "sync", 0, groups=("group-0", "group-1"))
    desk.ready("b", "sync", 1, groups=("group-1", "group-0"))
    desk.send(Ended("a.sync.0"), 50)
    assert desk.arbiter.holder("group-0").function.job == "b"
    assert desk.arbiter.holder("group-1").function.job == "b"


def test_a_lost_group_ends_the_lease_of_a_gang_everywhere():
    desk = Desk("group-0", "group-1")
    desk.ready("a", "sync", 0, groups=("group-0", "group-1"))
    desk.ready("b", "roll", 1, groups=("group-1",))
    assert admitted(desk.send(GroupLost("group-0"), 2)) == ["b.roll.0"]


def test_a_gang_is_not_starved_by_a_stream_of_short_functions():
    desk = Desk("group-0", "group-1", fairness=Fairness(max_overtaken=3), rule=FirstReady())
    desk.ready("a", "roll", 0, groups=("group-0",))
    desk.ready("b", "roll", 0, groups=("group-1",))
    desk.ready("gang", "sync", 1, groups=("group-0", "group-1"))
    running, now = {"group-0": "a.roll.0", "group-1": "b.roll.0"}, 1
    for iteration in range(1, 10):
        # Each group is refilled before the other one is free, which shuts the gang out.
        for job, group in (("a", "group-0"), ("b", "group-1")):
            now += 30
            desk.ready(job, "roll", now, groups=(group,), iteration=iteration)
            desk.send(Ended(running[group]), now)
            holder = desk.arbiter.holder(group)
            if holder is not None and holder.function.job == "gang":
                assert iteration <= 3
                return
            assert holder is not None
            running[group] = holder.function.id
    pytest.fail("the gang was never served")


def urgent_gang(*groups):
    """A desk where a gang was passed over on group-1 and cannot have group-0 yet."""
    desk = Desk(*groups, fairness=Fairness(max_overtaken=1), rule=YoungestFirst())
    desk.send(plan(("h", "roll", 100, 0), ("x", "roll", 100, 0)), 0)
    desk.ready("h", "roll", 0)
    desk.ready("b", "roll", 0, groups=("group-1",))
    assert admitted(desk.ready("x", "roll", 0)) == ["x.roll.0"]
    desk.ready("gang", "sync", 1, groups=("group-0", "group-1"))
    desk.ready("c", "roll", 2, groups=("group-1",))
    assert admitted(desk.send(Ended("b.roll.0"), 3)) == ["c.roll.0"]
    assert desk.send(Ended("c.roll.0"), 4) == ()
    return desk


def test_a_gang_passed_over_too_often_reserves_its_groups():
    desk = urgent_gang("group-0", "group-1")
    assert desk.ready("d", "roll", 5, groups=("group-1",)) == ()
    assert desk.reasons(5)["d.roll.0"] == (
        "group-1 is reserved for gang:sync, which was passed over too long"
    )
    assert admitted(desk.send(Ended("h.roll.0"), 6))[0] == "gang.sync.0"


def test_a_gang_that_lost_a_group_stops_reserving_the_others():
    desk = urgent_gang("group-0", "group-1")
    desk.ready("d", "roll", 5, groups=("group-1",))
    assert admitted(desk.send(GroupLost("group-0"), 6)) == ["d.roll.0"]


def test_a_gang_does_not_take_a_group_that_is_reserved_for_an_older_one():
    desk = urgent_gang("group-0", "group-1", "group-2")
    assert desk.ready("young", "sync", 5, groups=("group-2", "group-1")) == ()
    assert admitted(desk.send(Ended("h.roll.0"), 6))[0] == "gang.sync.0"


def test_an_op_that_ran_before_its_turn_gives_its_turn_away_once():
    cursor = Cursor(tuple(Slot(job, "roll", 10, 0) for job in "abc"), None)
    cursor.serve("b", "roll")
    assert [slot.job for _, slot in cursor.pending()] == ["a", "c"]
    cursor.advance(0)
    assert [slot.job for _, slot in cursor.pending()] == ["c", "a", "b"]


def test_a_slot_that_is_passed_over_comes_again_next_round():
    cursor = Cursor(tuple(Slot(job, "roll", 10, 0) for job in "abc"), None)
    cursor.advance(1)
    assert [slot.job for _, slot in cursor.pending()] == ["c", "a", "b"]


class YoungestFirst:
    """An unfair rule."""

    def choose(self, view):
        return Run(view.queue[-1].id)


def test_no_rule_can_overtake_a_function_for_ever():
    desk = Desk(fairness=Fairness(max_overtaken=4), rule=YoungestFirst())
    desk.ready("old", "roll", 0)
    desk.ready("old", "train", 0)
    served, now = [], 0
    for index in range(8):
        desk.ready(f"young-{index}", "roll", now)
        now += 100
        holder = desk.arbiter.holder("group-0")
        desk.send(Ended(holder.function.id), now)
        served.append(desk.arbiter.holder("group-0").function.id)
    assert served.index("old.train.0") == 4


def test_a_function_overtaken_by_long_ones_goes_first_after_a_multiple_of_its_length():
    desk = Desk(fairness=Fairness(max_overtaken=100, max_stretch=2), rule=YoungestFirst())
    desk.ready("old", "roll", 0)
    desk.ready("old", "train", 0, ticks=10)
    served, now = [], 0
    for index in range(8):
        desk.ready(f"young-{index}", "roll", now, ticks=1000)
        now += 1000
        desk.send(Ended(desk.arbiter.holder("group-0").function.id), now)
        served.append(desk.arbiter.holder("group-0").function.id)
    assert served.index("old.train.0") == 3


def test_a_rule_that_chooses_what_is_not_queued_is_refused():
    class Wild:
        def choose(self, view):
            return Run(f"{view.group}.nothing")

    desk = Desk(rule=Wild())
    with pytest.raises(DispatchError, match=r"GroupView\.queue"):
        desk.ready("a", "roll", 0)


def test_a_clock_that_steps_back_is_taken_to_stand_still():
    desk = Desk()
    desk.ready("a", "roll", 100)
    desk.send(Started("a.roll.0"), 90)
    assert desk.arbiter.holder("group-0").expected_end_ticks == 200


def test_an_event_costs_nothing_for_groups_it_does_not_touch():
    class Counting:
        def __init__(self):
            self.groups = []

        def choose(self, view):
            self.groups.append(view.group)
            return FirstReady().choose(view)

    rule = Counting()
    groups = [f"group-{index}" for index in range(50)]
    desk = Desk(*groups, rule=rule)
    for group in groups:
        desk.ready(group, "roll", 0, groups=(group,))
        desk.ready(group, "train", 0, groups=(group,))
    rule.groups.clear()
    desk.send(Ended("group-7.roll.0"), 10)
    assert set(rule.groups) == {"group-7"}


PAIR = ("group-0", "group-1")


def places(out):
    return [instruction.groups for instruction in out if isinstance(instruction, Admit)]


def test_where_any_group_will_do_a_free_one_is_picked():
    desk = Desk(*PAIR)
    assert places(desk.ready("a", "roll", 0, groups=PAIR, is_any=True)) == [("group-0",)]
    assert places(desk.ready("b", "roll", 0, groups=PAIR, is_any=True)) == [("group-1",)]


def test_among_free_groups_the_one_the_job_used_last_is_picked():
    desk = Desk(*PAIR)
    desk.ready("a", "roll", 0, groups=PAIR, is_any=True)
    desk.ready("b", "roll", 0, groups=PAIR, is_any=True)
    desk.send(Ended("a.roll.0"), 50)
    desk.send(Ended("b.roll.0"), 60)
    assert places(desk.ready("b", "roll", 70, groups=PAIR, iteration=1, is_any=True)) == [
        ("group-1",)
    ]


def test_a_function_that_may_run_anywhere_waits_for_the_group_that_is_free_first():
    desk = Desk(*PAIR)
    desk.ready("a", "roll", 0, groups=("group-0",), ticks=100)
    desk.ready("b", "roll", 0, groups=("group-1",), ticks=900)
    assert places(desk.ready("c", "roll", 5, groups=PAIR, is_any=True)) == []
    assert "group-0" in desk.reasons(5)["c.roll.0"]
    # Its expected end passes, and still nothing is bound to either group.
    assert places(desk.send(Woke(), 95)) == []
    assert places(desk.send(Ended("b.roll.0"), 300)) == [("group-1",)]
    assert places(desk.send(Ended("a.roll.0"), 400)) == []


def test_a_group_that_is_gone_does_not_hold_up_what_may_run_elsewhere():
    desk = Desk(*PAIR)
    desk.send(GroupLost("group-0"), 1)
    assert places(desk.ready("a", "roll", 2, groups=PAIR, is_any=True)) == [("group-1",)]
    desk.ready("b", "roll", 3, groups=PAIR, is_any=True)
    assert "group-1" in desk.reasons(3)["b.roll.0"]
    assert places(desk.send(GroupAdded("group-0"), 4)) == [("group-0",)]


def test_what_ran_on_a_lost_group_goes_on_on_another():
    desk = Desk(*PAIR)
    desk.ready("a", "roll", 0, groups=PAIR, is_any=True)
    desk.send(GroupLost("group-0"), 10)
    assert places(desk.ready("a", "roll", 11, groups=PAIR, is_any=True)) == [("group-1",)]


def test_a_withdrawn_function_leaves_all_the_queues_it_stood_in():
    desk = Desk(*PAIR)
    desk.ready("a", "roll", 0, groups=("group-0",))
    desk.ready("b", "roll", 0, groups=("group-1",))
    desk.ready("c", "roll", 1, groups=PAIR, is_any=True)
    desk.send(Withdrawn("c.roll.0"), 2)
    assert [desk.arbiter.num_waiting(group) for group in PAIR] == [0, 0]


def test_what_was_passed_over_too_often_gets_the_first_group_that_is_free():
    desk = Desk(*PAIR, rule=YoungestFirst(), fairness=Fairness(max_overtaken=1))
    desk.ready("a", "roll", 0, groups=("group-0",))
    desk.ready("b", "roll", 0, groups=("group-1",))
    desk.ready("old", "roll", 1, groups=PAIR, is_any=True)
    desk.ready("c", "roll", 2, groups=PAIR, is_any=True)
    desk.ready("d", "roll", 3, groups=PAIR, is_any=True)
    assert admitted(desk.send(Ended("a.roll.0"), 10)) == ["d.roll.0"]
    assert admitted(desk.send(Ended("b.roll.0"), 20)) == ["old.roll.0"]


def test_an_op_that_ran_elsewhere_counts_as_served_in_every_order_it_stands_in():
    desk = Desk(*PAIR)
    slots = (("a", "roll", 100, 0), ("b", "roll", 100, 0))
    orders = {group: tuple(Slot(*slot) for slot in slots) for group in PAIR}
    desk.send(PlanAdopted(DispatchPlan(orders)), 0)
    desk.ready("x", "roll", 0, groups=PAIR)
    desk.ready("b", "roll", 1, groups=PAIR, is_any=True)
    desk.ready("a", "roll", 2, groups=PAIR, is_any=True)
    assert admitted(desk.send(Ended("x.roll.0"), 100)) == ["a.roll.0", "b.roll.0"]
