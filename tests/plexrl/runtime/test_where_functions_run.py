"""Where functions run: on their job's groups, where they yielded, or anywhere once it has ended."""

import pytest

from plexrl.core.placement import Placement
from plexrl.core.states import Tier
from plexrl.core.status import JobState
from plexrl.services.reports import LeaseEnded, LeaseStarted, ServiceSnapshot
from solver.trace import Outcome
from tests.plexrl.runtime.test_rescue import Cluster


@pytest.fixture
def cluster():
    return Cluster()


ANNOTATION = {"job": "a", "model": "actor", "iteration": 0, "version": 0}


def become_ready(cluster, name, function, iteration):
    what = {"function": function, "op": f"actor.{function}.0", "iteration": iteration}
    annotation = {**ANNOTATION, **what}
    if name not in cluster.coordinator.ledger:
        cluster.coordinator.known(name, annotation)
    cluster.coordinator.ready(name, cluster.now_s)
    return [g for g in "ghk" if cluster.coordinator.arbiter.holder(g) is not None]


def hold_and_yield(cluster, name, group):
    cluster.coordinator.ledger.admitted(name, (group,))
    report_lease(cluster, name, group, Outcome.YIELDED)


def report_lease(cluster, name, group, outcome):
    cluster.coordinator.report(LeaseStarted(name, group, cluster.now_s), cluster.now_s)
    ended = LeaseEnded(
        name,
        group,
        cluster.now_s,
        cluster.now_s + 1,
        0.0,
        Tier.HOST,
        0,
        outcome,
        ServiceSnapshot(),
    )
    cluster.coordinator.report(ended, cluster.now_s + 1)


def test_a_rollout_that_yielded_goes_on_where_it_did_although_its_job_samples_elsewhere(cluster):
    home, (guest,) = cluster.placement.home, cluster.placement.guests
    (spare,) = {"g", "h", "k"} - set(cluster.placement.groups)
    assert become_ready(cluster, "f", "rollout", 0) == [guest]
    hold_and_yield(cluster, "f", guest)
    cluster.coordinator.jobs.set_placement("a", Placement.of(home, {"rollout": spare}))
    assert become_ready(cluster, "f", "rollout", 0) == [guest]
    assert become_ready(cluster, "new", "rollout", 1) == sorted([guest, spare])


def test_what_a_yielded_rollout_left_on_a_lost_group_binds_it_no_more(cluster):
    home, (guest,) = cluster.placement.home, cluster.placement.guests
    (spare,) = {"g", "h", "k"} - set(cluster.placement.groups)
    become_ready(cluster, "f", "rollout", 0)
    hold_and_yield(cluster, "f", guest)
    cluster.coordinator.jobs.set_placement("a", Placement.of(home, {"rollout": spare}))
    cluster.group_down(guest)
    assert become_ready(cluster, "f", "rollout", 0) == [spare]


def test_a_yielded_rollout_that_waits_for_its_group_runs_elsewhere_when_that_is_lost(cluster):
    home, (guest,) = cluster.placement.home, cluster.placement.guests
    (spare,) = {"g", "h", "k"} - set(cluster.placement.groups)
    become_ready(cluster, "f", "rollout", 0)
    hold_and_yield(cluster, "f", guest)
    become_ready(cluster, "next", "rollout", 1)
    assert become_ready(cluster, "f", "rollout", 0) == [guest]
    cluster.coordinator.jobs.set_placement("a", Placement.of(home, {"rollout": spare}))
    cluster.group_down(guest)
    assert cluster.coordinator.arbiter.holder(spare).function.id == "f"


def test_one_whose_inputs_went_with_the_group_waits_for_none(cluster):
    guest = next(iter(cluster.placement.guests))
    become_ready(cluster, "f", "rollout", 0)
    hold_and_yield(cluster, "f", guest)
    become_ready(cluster, "next", "rollout", 1)
    become_ready(cluster, "f", "rollout", 0)
    cluster.coordinator.withdrawn("f", cluster.now_s)
    cluster.group_down(guest)
    assert cluster.coordinator.arbiter.num_waiting(guest) == 0


@pytest.mark.parametrize("state", [JobState.CANCELLED, JobState.PAUSED])
def test_a_job_that_is_off_its_groups_is_exported_although_its_home_is_gone(cluster, state):
    if state is JobState.PAUSED:
        cluster.coordinator.rest("a", cluster.now_s)
    else:
        cluster.coordinator.end("a", state, cluster.now_s)
    assert become_ready(cluster, "first", "sync", -1) == [cluster.placement.home]
    cluster.coordinator.withdrawn("first", cluster.now_s)
    cluster.group_down(cluster.placement.home)
    (group,) = become_ready(cluster, "second", "sync", -1)
    assert group != cluster.placement.home


def test_what_a_group_reports_after_it_is_gone_withdraws_what_it_had_done(cluster):
    (guest,) = cluster.placement.guests
    assert become_ready(cluster, "f", "rollout", 0) == [guest]
    cluster.coordinator.ledger.admitted("f", (guest,))
    cluster.group_down(guest)
    assert become_ready(cluster, "f", "rollout", 0) == []
    report_lease(cluster, "f", guest, Outcome.DONE)
    cluster.group_up(guest)
    assert become_ready(cluster, "next", "rollout", 1) == [guest]
    assert cluster.coordinator.arbiter.holder(guest).function.id == "next"
