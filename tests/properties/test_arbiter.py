"""Whatever happens in whatever order, the arbiter keeps its invariants and leaves nobody behind."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

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
    Yielded,
)
from solver.dispatch.instructions import Admit, WakeAt, Yield
from solver.dispatch.rules import FirstReady, LargestLagFirst, PlanOrderWithBackfill
from solver.dispatch.views import Run
from solver.dispatch.yielding import YieldRule

GROUPS = ("group-0", "group-1", "group-2")
JOBS = ("a", "b", "c", "d")
OPS = ("roll", "train")


class YoungestFirst:
    """An unfair rule: only the arbiter's own bound keeps the old from starving."""

    def choose(self, view):
        return Run(view.queue[-1].id)


RULES = (
    PlanOrderWithBackfill(),
    PlanOrderWithBackfill(1.0, 0.0),
    LargestLagFirst(),
    FirstReady(),
    YoungestFirst(),
)
TICKS = st.integers(0, 300)


class Cluster(RuleBasedStateMachine):
    """Plays the runtime: knows what was granted, and checks each answer against it."""

    @initialize(rule=st.sampled_from(RULES))
    def begin(self, rule):
        self.arbiter = Arbiter(
            rule,
            fairness=Fairness(max_overtaken=1),
            yielding=YieldRule(gain=0.5, quantum_ticks=10, max_yields=2),
        )
        self.asked: set[str] = set()
        self.now = 0
        self.num_functions = 0
        self.queued: dict[str, FunctionRef] = {}
        self.granted: dict[str, FunctionRef] = {}
        self.wanted: dict[str, FunctionRef] = {}
        self.started: set[str] = set()
        self.present: set[str] = set()
        self.lines: dict[str, list[str]] = {group: [] for group in GROUPS}
        self.wakes: list[int] = []
        self.send(GroupAdded("group-0"))
        self.present.add("group-0")

    def send(self, event):
        for instruction in self.arbiter.handle(event, self.now):
            if isinstance(instruction, Admit):
                self.note_admission(instruction)
            elif isinstance(instruction, WakeAt):
                assert instruction.tick > self.now
                self.wakes.append(instruction.tick)
            elif isinstance(instruction, Yield):
                ref = self.granted[instruction.id]
                assert ref.is_yieldable
                assert instruction.id in self.started
                assert instruction.id not in self.asked
                self.asked.add(instruction.id)

    def note_admission(self, admit):
        ref = self.queued.pop(admit.id)
        if ref.is_any:
            assert len(admit.groups) == 1
            assert admit.groups[0] in ref.groups
            assert not admit.is_ahead
            ref = replace(ref, groups=admit.groups)
        assert admit.groups == ref.groups
        is_ahead = False
        for group in ref.groups:
            assert group in self.present
            is_ahead |= bool(self.lines[group])
            self.lines[group].append(admit.id)
            assert len(self.lines[group]) <= 2
        assert admit.is_ahead == is_ahead
        self.granted[admit.id] = ref

    def free(self, name):
        del self.granted[name]
        self.started.discard(name)
        self.asked.discard(name)
        for line in self.lines.values():
            if name in line:
                line.remove(name)

    def can_start(self, name):
        return all(self.lines[group][0] == name for group in self.granted[name].groups)

    @rule(
        job=st.sampled_from(JOBS),
        op=st.sampled_from(OPS),
        groups=st.lists(st.sampled_from(GROUPS), min_size=1, max_size=3, unique=True),
        duration=st.integers(1, 100),
        is_any=st.booleans(),
        gap=TICKS,
        is_yieldable=st.booleans(),
    )
    def ready(self, job, op, groups, duration, is_any, gap, is_yieldable):
        self.now += gap
        self.num_functions += 1
        name = f"{job}.{op}.{self.num_functions}"
        ref = FunctionRef(
            name,
            job,
            op,
            self.num_functions,
            tuple(groups),
            duration,
            is_yieldable=is_yieldable,
            is_any=is_any,
        )
        self.queued[name] = self.wanted[name] = ref
        self.send(Ready(ref))

    @precondition(lambda self: self.granted)
    @rule(data=st.data(), gap=TICKS)
    def start(self, data, gap):
        self.now += gap
        able = sorted(name for name in self.granted if name not in self.started)
        able = [name for name in able if self.can_start(name)]
        if able:
            name = data.draw(st.sampled_from(able))
            self.started.add(name)
            self.send(Started(name))

    @precondition(lambda self: self.granted)
    @rule(data=st.data(), gap=TICKS)
    def end(self, data, gap):
        self.now += gap
        name = data.draw(st.sampled_from(sorted(self.granted)))
        self.free(name)
        self.send(Ended(name))

    @precondition(lambda self: self.asked)
    @rule(data=st.data(), gap=TICKS, served=st.integers(1, 300))
    def stop_in_the_middle(self, data, gap, served):
        self.now += gap
        name = data.draw(st.sampled_from(sorted(self.asked)))
        ref = self.granted[name]
        self.free(name)
        self.send(Yielded(name))
        wanted = replace(self.wanted[name], served_ticks=ref.served_ticks + served)
        # Only the group that keeps what it did will do from now on.
        self.queued[name] = replace(wanted, groups=ref.groups, is_any=False)
        self.send(Ready(wanted))

    @precondition(lambda self: self.queued or set(self.granted) - self.started)
    @rule(data=st.data())
    def withdraw(self, data):
        name = data.draw(st.sampled_from(sorted({*self.queued, *self.granted} - self.started)))
        if name in self.granted:
            self.free(name)
        else:
            del self.queued[name]
        self.send(Withdrawn(name))

    @rule(group=st.sampled_from(GROUPS))
    def add_or_lose_a_group(self, group):
        if group not in self.present:
            self.present.add(group)
            self.send(GroupAdded(group))
            return
        self.present.remove(group)
        lost = [name for name, ref in self.granted.items() if group in ref.groups]
        for name in lost:
            self.free(name)
        for name in self.queued:
            if self.wanted[name].is_any and self.queued[name].groups == (group,):
                # What it kept is lost, so that any group will do again.
                self.queued[name] = self.wanted[name]
        self.send(GroupLost(group))
        for name in lost:
            # The worker's last word comes late, then the function is ready again.
            self.send(Ended(name))
            self.queued[name] = self.wanted[name]
            self.send(Ready(self.wanted[name]))

    @rule(job=st.sampled_from(JOBS))
    def job_leaves(self, job):
        self.send(JobLeft(job))

    @rule(
        orders=st.dictionaries(
            st.sampled_from(GROUPS),
            st.lists(
                st.builds(
                    Slot,
                    st.sampled_from((*JOBS, "ghost")),
                    st.sampled_from(OPS),
                    st.integers(1, 100),
                    st.integers(0, 300),
                ),
                max_size=6,
            ).map(tuple),
        )
    )
    def adopt(self, orders):
        self.send(PlanAdopted(DispatchPlan(orders)))

    @rule(gap=st.integers(0, 100))
    def wake(self, gap):
        self.now += gap
        self.send(Woke())

    @invariant()
    def table_is_consistent(self):
        if hasattr(self, "arbiter"):
            self.arbiter.check()
            waiting = {entry.id for entry in self.arbiter.waiting(self.now)}
            assert set(self.queued) <= waiting
            assert all(entry.reason for entry in self.arbiter.waiting(self.now))

    def teardown(self):
        if not hasattr(self, "arbiter"):
            return
        for group in GROUPS:
            if group not in self.present:
                self.present.add(group)
                self.send(GroupAdded(group))
        # Let everything granted run to its end: in the end all must have been served.
        for _ in range(20 * (self.num_functions + 1)):
            if not self.queued and not self.granted:
                break
            able = [name for name in self.granted if self.can_start(name)]
            if able:
                self.now += 50
                self.free(able[0])
                self.send(Ended(able[0]))
            else:
                # Only a group that is kept for something planned may leave work undone.
                later = [tick for tick in self.wakes if tick > self.now]
                assert later, f"nothing runs, nothing will wake, {sorted(self.queued)} wait"
                self.now = min(later)
                self.send(Woke())
            self.arbiter.check()
        assert not self.queued, f"{sorted(self.queued)} were never served"


Cluster.TestCase.settings = settings(max_examples=60, stateful_step_count=40)
TestArbiter = pytest.mark.slow(Cluster.TestCase)
