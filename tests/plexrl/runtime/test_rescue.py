"""Jobs of groups that do not come back go elsewhere, by way of what they still have."""

import asyncio

import pytest

from dataflow.calls import AttachOptions
from plexrl.core.jobs import JobFacts
from plexrl.core.placement import Arrangement
from plexrl.core.relocations import Step
from plexrl.core.status import JobState
from plexrl.planning.config import PlanningConfig
from plexrl.planning.planner import GroupFacts, Planner
from plexrl.runtime.coordinator import GROUP_PATIENCE_S, Coordinator
from plexrl.runtime.drivers import DriverPlacement
from plexrl.runtime.messages import DriverStarted, Order
from plexrl.runtime.steering import Steering
from plexrl.services.reports import JobLetGo, ServiceSnapshot
from solver.dispatch.arbiter import Arbiter


class Sent:
    """Outbox that keeps what it was told to send."""

    def __init__(self):
        self.orders, self.forgets = [], []

    def order(self, worker, job, order):
        self.orders.append((worker, job, order))

    def forget(self, worker, job):
        self.forgets.append((worker, job))


class Cluster:
    """Scheduler side with three groups and one split job, whose driver runs."""

    def __init__(self, ops=(), **wishes):
        self.now_s, self.sent = 100.0, Sent()
        self.coordinator = Coordinator(Planner(PlanningConfig()), Arbiter(), 100.0)
        for group in ("g", "h", "k"):
            self.group_up(group)
        facts = JobFacts(
            "a",
            ops,
            1,
            9,
            2.0,
            1.0,
            {"actor": AttachOptions("folder", is_trainable=True)},
            arrangement=Arrangement.SPLIT,
            **wishes,
        )
        self.placement = self.coordinator.submit(facts, self.now_s)
        self.coordinator.jobs.set_driver("a", "tcp://cpu")
        self.coordinator.driver_event(DriverStarted("a", 101.0, 0))
        self.steering = Steering(
            self.coordinator,
            DriverPlacement("run"),
            self.sent,
            placed=lambda _job: None,
            settle=lambda: None,
            clock=lambda: self.now_s,
        )

    def group_up(self, group):
        facts = GroupFacts(group, 1000)
        self.coordinator.group_up(facts, f"tcp://{group}", 1000, self.now_s)

    def group_down(self, group):
        self.coordinator.group_down(group, self.now_s)
        self.steering.worker_lost(f"tcp://{group}")

    def step(self):
        row = self.coordinator.relocations.get("a")
        return None if row is None else row.step

    def answers(self, group, error="", job="a"):
        report = JobLetGo(job, group, ServiceSnapshot(), error)
        self.steering.let_go(report)


@pytest.fixture
def cluster():
    return Cluster()


def test_a_job_that_lost_where_it_samples_lets_its_home_write_first(cluster):
    (guest,) = cluster.placement.guests
    home = cluster.placement.home
    cluster.group_down(guest)
    cluster.steering.rescue()
    assert cluster.sent.orders == []
    cluster.now_s += GROUP_PATIENCE_S + 1
    cluster.steering.rescue()
    assert cluster.sent.orders == [("tcp://cpu", "a", Order.STEP_ASIDE_NOW)]
    assert cluster.steering.stepped_aside("a")
    assert cluster.sent.forgets == [(f"tcp://{home}", "a")]
    assert cluster.step() is Step.LETTING_GO
    cluster.answers(home)
    assert cluster.step() is None
    assert guest not in cluster.coordinator.jobs["a"].placement.groups


def test_a_job_asked_to_move_does_not_wait_for_an_iteration_that_cannot_end(cluster):
    home = cluster.placement.home
    (spare,) = {"g", "h", "k"} - set(cluster.placement.groups)
    asyncio.run(cluster.steering.move("a", spare, "repair", is_now=False))
    assert cluster.sent.orders[-1][2] is Order.STEP_ASIDE
    cluster.group_down(home)
    cluster.now_s += GROUP_PATIENCE_S + 1
    cluster.steering.rescue()
    assert cluster.sent.orders[-1][2] is Order.STEP_ASIDE_NOW
    assert cluster.steering.stepped_aside("a")
    cluster.steering.rescue()
    cluster.answers(cluster.placement.guests[0])
    assert cluster.coordinator.jobs["a"].placement.home == spare


def test_a_worker_that_comes_back_at_its_address_is_told_again(cluster):
    home, (guest,) = cluster.placement.home, cluster.placement.guests
    (spare,) = {"g", "h", "k"} - set(cluster.placement.groups)
    asyncio.run(cluster.steering.move("a", spare, "", is_now=True))
    assert cluster.steering.stepped_aside("a")
    assert sorted(cluster.sent.forgets) == sorted([(f"tcp://{g}", "a") for g in (home, guest)])
    cluster.sent.forgets.clear()
    cluster.group_down(home)
    cluster.group_up(home)
    cluster.steering.proceed()
    assert cluster.sent.forgets == [(f"tcp://{home}", "a")]
    cluster.answers(guest)
    cluster.answers(home)
    assert cluster.coordinator.jobs["a"].placement.home == spare


def test_a_group_that_cannot_let_go_is_asked_again_and_the_status_says_so(cluster):
    home, (guest,) = cluster.placement.home, cluster.placement.guests
    (spare,) = {"g", "h", "k"} - set(cluster.placement.groups)
    asyncio.run(cluster.steering.move("a", spare, "", is_now=True))
    assert cluster.steering.stepped_aside("a")
    cluster.answers(guest)
    cluster.answers(home, error="the disk is full")
    assert "the disk is full" in str(cluster.coordinator.relocations.get("a"))
    cluster.sent.forgets.clear()
    cluster.steering.proceed()
    assert cluster.sent.forgets == [(f"tcp://{home}", "a")]


def test_an_arrangement_that_the_groups_that_are_left_cannot_hold_gives_way(cluster):
    home, (guest,) = cluster.placement.home, cluster.placement.guests
    (spare,) = {"g", "h", "k"} - set(cluster.placement.groups)
    cluster.group_down(spare)
    cluster.group_down(guest)
    cluster.now_s += GROUP_PATIENCE_S + 1
    cluster.steering.rescue()
    assert cluster.steering.stepped_aside("a")
    cluster.answers(home)
    assert cluster.step() is None
    assert cluster.coordinator.jobs["a"].placement.groups == (home,)


def test_a_job_told_to_run_on_a_lost_group_waits_for_it_but_pauses_when_asked():
    cluster = Cluster(pins={"rollout": "h"})
    cluster.group_down("h")
    cluster.now_s += GROUP_PATIENCE_S + 1
    cluster.steering.rescue()
    assert cluster.sent.orders == []
    asyncio.run(cluster.steering.pause("a", "", is_now=False))
    cluster.steering.rescue()
    assert cluster.sent.orders[-1] == ("tcp://cpu", "a", Order.STEP_ASIDE_NOW)
    assert cluster.steering.stepped_aside("a")
    cluster.answers(cluster.placement.home)
    assert cluster.coordinator.jobs["a"].state is JobState.PAUSED
    assert cluster.step() is None


def test_a_job_pauses_although_no_group_is_left(cluster):
    for group in ("g", "h", "k"):
        cluster.group_down(group)
    cluster.now_s += GROUP_PATIENCE_S + 1
    cluster.steering.rescue()
    assert cluster.sent.orders == []
    asyncio.run(cluster.steering.pause("a", "", is_now=False))
    cluster.steering.rescue()
    assert cluster.steering.stepped_aside("a")
    assert cluster.coordinator.jobs["a"].state is JobState.PAUSED
    assert cluster.step() is None
