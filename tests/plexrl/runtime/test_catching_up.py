"""Iterations that committed while nobody could say so are told by the driver that comes next."""

import pytest

from dataflow.calls import AttachOptions, VersionToken
from plexrl.core.jobs import JobFacts
from plexrl.planning.config import PlanningConfig
from plexrl.planning.planner import GroupFacts, Planner
from plexrl.runtime.coordinator import Coordinator
from plexrl.runtime.messages import DriverStarted, IterationCommitted
from solver.dispatch.arbiter import Arbiter
from solver.trace import IterationRecord


@pytest.fixture
def coordinator():
    coordinator = Coordinator(Planner(PlanningConfig()), Arbiter(), 100.0)
    coordinator.group_up(GroupFacts("g", 1000), "tcp://w", 1000, 100.0)
    facts = JobFacts("a", (), 1, 9, 2.0, 1.0, {"actor": AttachOptions("folder", is_trainable=True)})
    coordinator.submit(facts, 101.0)
    return coordinator


def started(index, at_s, reward=0.5):
    token = VersionToken("a", "actor", index, f"d{index}")
    newest = IterationRecord("a", index - 1, at_s, at_s, (("reward_mean", reward),))
    return DriverStarted("a", at_s, index, (token,), (newest,) if index else ())


def test_the_iteration_an_interrupted_driver_did_not_see_is_there(coordinator):
    coordinator.driver_event(started(0, 102.0))
    record = IterationRecord("a", 0, 102.0, 103.0, (("reward_mean", 0.1),))
    coordinator.driver_event(IterationCommitted(record, ()))
    coordinator.driver_event(started(2, 106.0, reward=0.7))
    rows = list(coordinator.jobs["a"].iterations)
    assert [(row.iteration, row.started_s, row.ended_s) for row in rows] == [(0, 2, 3), (1, 3, 6)]
    assert dict(rows[1].metrics) == {"reward_mean": 0.7}
    assert coordinator.models("a")["actor"].token.version == 2
    coordinator.jobs.check()


def test_a_job_that_is_resumed_from_the_store_shows_this_life_only(coordinator):
    coordinator.driver_event(started(1, 102.0))
    assert not list(coordinator.jobs["a"].iterations)
    assert coordinator.jobs["a"].num_committed == 1


def test_a_resumed_job_that_has_nothing_left_to_do_has_its_newest_version(coordinator):
    coordinator.driver_event(started(3, 102.0))
    assert coordinator.models("a")["actor"].token.version == 3


def test_a_job_that_has_not_trained_yet_has_no_version(coordinator):
    coordinator.driver_event(started(0, 102.0))
    assert coordinator.models("a")["actor"].token is None
