"""What people are told of a job on its way: where it is, what it waits for, what is free."""

import asyncio
import json
from types import SimpleNamespace

import pytest

import solver
from plexrl.core.jobs import JobFacts, OpHint
from plexrl.core.placement import Placement
from plexrl.errors import JobError
from plexrl.runtime.messages import DriverStarted, Order, unpack
from plexrl.runtime.snapshot import Moment, job_status
from tests.plexrl.runtime.test_rescue import Cluster


@pytest.fixture
def cluster():
    return Cluster()


def look(cluster):
    status = cluster.coordinator.status(cluster.now_s, {}, 0)
    moment = Moment.at(cluster.now_s, cluster.coordinator.epoch_s, {}, 0)
    assert job_status(cluster.coordinator.tables, "a", moment) == status.jobs[0]
    return status.jobs[0], {group.name: group.draining for group in status.groups}


def do(coroutine):
    return asyncio.run(coroutine)


def test_a_group_is_drained_only_once_it_wrote_what_a_paused_job_left_there(cluster):
    home, (guest,) = cluster.placement.home, cluster.placement.guests
    do(cluster.steering.pause("a", "a demo", is_now=True))
    assert cluster.steering.stepped_aside("a")
    do(cluster.steering.drain(home, "repair", is_now=False))
    job, draining = look(cluster)
    assert draining[home] == "draining, 1 job left (repair)"
    assert job.group == str(cluster.placement)
    cluster.answers(home)
    assert look(cluster)[1][home] == "drained (repair)"
    cluster.answers(guest)
    job, _ = look(cluster)
    assert (job.group, job.waiting) == ("", "plexrl unpause a (a demo)")


def test_a_job_that_was_unpaused_and_finds_no_room_is_not_told_to_be_unpaused(cluster):
    do(cluster.steering.pause("a", "a demo", is_now=True))
    assert cluster.steering.stepped_aside("a")
    for group in cluster.placement.groups:
        cluster.answers(group)
        do(cluster.steering.drain(group, "", is_now=False))
    do(cluster.steering.unpause("a"))
    job, _ = look(cluster)
    assert "which needs two groups" in job.asked
    assert (job.group, job.waits_for) == ("", "a group")
    (spare,) = {"g", "h", "k"} - set(cluster.placement.groups)
    do(cluster.steering.move("a", spare, "", is_now=False))
    do(cluster.steering.undrain(cluster.placement.home))
    assert cluster.coordinator.jobs["a"].placement.home == spare


def test_a_job_is_not_sent_where_its_own_wishes_forbid_it(cluster):
    (guest,) = cluster.placement.guests
    for group in {"g", "h", "k"} - {guest}:
        cluster.group_down(group)
    with pytest.raises(JobError, match="needs two groups"):
        do(cluster.steering.move("a", guest, "", is_now=False))
    assert cluster.step() is None
    assert cluster.sent.orders == []


@pytest.mark.parametrize("trouble", ["drains", "is lost", ""])
def test_a_plan_puts_no_job_on_a_group_that_takes_none_by_then(cluster, trouble):
    (spare,) = {"g", "h", "k"} - set(cluster.placement.groups)
    wanted = Placement.of(cluster.placement.home, {"rollout": spare})
    move = SimpleNamespace(job="a", placement=wanted, gain=0.3)
    cluster.steering.adopted(SimpleNamespace(rearrangement=move))
    if trouble == "drains":
        do(cluster.steering.drain(spare, "", is_now=False))
    elif trouble:
        cluster.group_down(spare)
    cluster.steering.iteration_ended("a")
    found = cluster.coordinator.jobs["a"].placement
    assert found == (cluster.placement if trouble else wanted)


OPS = (OpHint("actor.rollout.0", 0.3, 0.2), OpHint("actor.train.0", 0.1, 0.0))


def plan_for(groups, **places):
    """A plan with jobs on these groups: where each samples, and where it trains."""
    jobs = tuple(
        solver.Job(
            name,
            (solver.Op(OPS[0].op, 300, 200, group=rollout), solver.Op(OPS[1].op, 100)),
            1,
            100_000,
            pinned_group=home,
        )
        for name, (rollout, home) in places.items()
    )
    problem = solver.Problem(tuple(solver.Group(name, 1000) for name in groups), jobs)
    return json.dumps(solver.greedy(problem).to_json())


def test_an_applied_plan_has_a_job_sample_elsewhere_once_there_is_room():
    cluster = Cluster(OPS, copy_bytes=10)
    home, (guest,) = cluster.placement.home, cluster.placement.guests
    (spare,) = {"g", "h", "k"} - {home, guest}
    beside = JobFacts("b", OPS, 995, 9, 9.0, 1.0, {})
    assert str(cluster.coordinator.submit(beside, cluster.now_s)) == spare
    cluster.coordinator.jobs.set_driver("b", "tcp://cpu")
    cluster.coordinator.driver_event(DriverStarted("b", 101.0, 0))
    plan = plan_for("ghk", a=(spare, home), b=(guest, guest))
    applied = unpack(do(cluster.steering.apply(plan)))
    assert applied.moves == (
        ("a", f"{home}+{guest}", f"{home}+{spare}"),
        ("b", spare, guest),
    )
    assert look(cluster)[0].asked == f"samples on {spare} after its iteration (a plan was applied)"
    assert cluster.sent.orders == [("tcp://cpu", "b", Order.STEP_ASIDE)]
    # The other one is in the middle of its iteration.
    cluster.steering.iteration_ended("a")
    assert cluster.coordinator.jobs["a"].placement == cluster.placement
    assert look(cluster)[0].asked.startswith("samples on")
    assert cluster.steering.stepped_aside("b")
    cluster.answers(spare, job="b")
    assert "once there is room" in str(cluster.coordinator.relocations.get("b"))
    cluster.steering.iteration_ended("a")
    assert str(cluster.coordinator.jobs["a"].placement) == f"{home}+{spare}"
    assert look(cluster)[0].asked == ""
    cluster.steering.proceed()
    assert str(cluster.coordinator.jobs["b"].placement) == guest
    assert "b" not in cluster.coordinator.relocations


def test_a_plan_is_not_applied_while_a_job_is_on_its_way():
    cluster = Cluster(OPS)
    do(cluster.steering.pause("a", "a demo", is_now=False))
    with pytest.raises(JobError, match="apply the plan when that is done"):
        do(cluster.steering.apply(plan_for("gh", a=("g", "h"))))
