"""What follows a task is granted its group in the round of transitions that ends the task."""

import asyncio
from contextlib import nullcontext

import pytest

from plexrl.runtime.admissions import Admissions
from plexrl.services.reports import LeaseStarted
from solver.trace import Outcome
from tests.plexrl.runtime.test_rescue import Cluster
from tests.plexrl.runtime.test_where_functions_run import ANNOTATION, report_lease


class Tasks:
    """A gate to tasks whose state the test sets."""

    def __init__(self, **following):
        self.following = following
        self.states = {}
        self.admitted, self.held = [], []

    def hold(self, key):
        self.states[key] = "waiting"

    def about_to_run(self, key):
        return self.following.get(key, ())

    def admit(self, key, group, _address):
        self.admitted.append((key, group))
        return True

    def hold_again(self, key):
        self.held.append(key)

    def is_wanted(self, _key):
        return True

    def workers(self):
        return ("tcp://g", "tcp://h", "tcp://k")


def admissions_of(cluster, gate):
    return Admissions(
        gate,
        cluster.coordinator,
        cluster.sent,
        lambda: cluster.now_s,
        lambda _what: nullcontext(),
    )


@pytest.fixture
def cluster():
    return Cluster()


def annotation(function, iteration=0):
    what = {"function": function, "op": f"actor.{function}.0", "iteration": iteration}
    return {**ANNOTATION, "turn": 0, "attempt": 0, **what}


def in_loop(act):
    """Run it in an event loop, and what it left to that."""

    async def live():
        act()
        await asyncio.sleep(0)

    asyncio.run(live())


def start(cluster, admissions, key, group):
    """A function runs on its group."""
    admissions.follow(key, "waiting", "no-worker")
    admissions.drain()
    cluster.coordinator.report(LeaseStarted(key, group, cluster.now_s), cluster.now_s)


def test_what_follows_on_a_free_group_is_admitted_before_dask_would_hold_it(cluster):
    gate, home = Tasks(reward=("train",)), cluster.placement.home
    admissions = admissions_of(cluster, gate)

    def act():
        admissions.hold("train", annotation("train"))
        admissions.followed_by("reward")
        assert gate.admitted == [("train", home)]
        admissions.follow("train", "waiting", "processing")
        admissions.followed_by("reward")

    in_loop(act)
    assert gate.admitted == [("train", home)]
    assert cluster.coordinator.arbiter.holder(home).function.id == "train"


def test_it_waits_where_another_function_has_the_group_and_is_told_ready_once(cluster):
    gate, home = Tasks(reward=("train",)), cluster.placement.home
    admissions = admissions_of(cluster, gate)

    def act():
        admissions.hold("sync", annotation("sync", iteration=-1))
        admissions.hold("train", annotation("train"))
        start(cluster, admissions, "sync", home)
        admissions.followed_by("reward")
        admissions.follow("train", "waiting", "no-worker")

    in_loop(act)
    assert ("train", home) not in gate.admitted
    assert cluster.coordinator.arbiter.num_waiting(home) == 1


def test_what_others_were_granted_in_that_round_waits_for_its_end(cluster):
    gate, home = Tasks(reward=("train",)), cluster.placement.home
    admissions = admissions_of(cluster, gate)

    def act():
        admissions.hold("other", annotation("sync", iteration=-1))
        admissions.hold("train", annotation("train"))
        cluster.coordinator.ready("other", cluster.now_s)
        admissions.followed_by("reward")
        assert ("other", home) not in gate.admitted

    in_loop(act)
    assert ("other", home) in gate.admitted


@pytest.mark.parametrize("finish", ["released", "forgotten"])
def test_one_that_was_let_through_and_did_not_run_gives_its_group_back(cluster, finish):
    gate, home = Tasks(reward=("train",)), cluster.placement.home
    admissions = admissions_of(cluster, gate)

    def act():
        admissions.hold("train", annotation("train"))
        admissions.followed_by("reward")
        admissions.follow("train", "waiting", finish)

    in_loop(act)
    assert gate.held == ["train"]
    assert cluster.coordinator.arbiter.holder(home) is None


def test_one_that_dask_holds_all_the_same_is_served_late(cluster):
    gate, home = Tasks(reward=("train",)), cluster.placement.home
    gate.state = lambda _key: "no-worker"
    admissions = admissions_of(cluster, gate)

    def act():
        admissions.hold("train", annotation("train"))
        admissions.followed_by("reward")
        admissions.follow("train", "waiting", "no-worker")
        assert gate.held == ["train"]
        admissions.serve_late()

    in_loop(act)
    assert gate.admitted == [("train", home)] * 2


def test_a_task_that_is_denied_is_not_told_ready(cluster):
    gate = Tasks(reward=("train",))
    admissions = admissions_of(cluster, gate)

    def act():
        admissions.hold("train", {**annotation("train"), "job": "unheard of"})
        admissions.followed_by("reward")

    in_loop(act)
    assert gate.admitted == []


def test_a_function_that_ran_is_granted_anew_when_it_runs_again(cluster):
    gate, home = Tasks(reward=("train",)), cluster.placement.home
    admissions = admissions_of(cluster, gate)

    def act():
        admissions.hold("train", annotation("train"))
        for _ in range(2):
            admissions.followed_by("reward")
            report_lease(cluster, "train", home, Outcome.DONE)
            admissions.follow("train", "processing", "memory")

    in_loop(act)
    assert gate.admitted == [("train", home)] * 2
