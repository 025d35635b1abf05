import io
from dataclasses import replace

import pytest
from rich.console import Console

from dataflow.jobs import JobSpec
from plexrl.cli import running
from plexrl.cli.running import PlanTape, run_jobs
from plexrl.core.states import Tier, Traffic
from plexrl.core.status import JobState, PlanStatus
from plexrl.errors import JobError
from plexrl.runtime.messages import Trace
from tests.plexrl.cli.made_up import PLAN, group, iteration, job, lease, snapshot


def plan(adopted_s, *jobs, num_solves=1):
    order = {"group-0": tuple(f"{name}:actor.rollout.0" for name in jobs)}
    return replace(PLAN, adopted_s=adopted_s, order=order, num_solves=num_solves)


def spec(name):
    return JobSpec(name, {}, pipeline=print, iterations=10)


class FakeRun:
    def __init__(self, cluster, name):
        self.cluster, self.name = cluster, name

    def cancel(self):
        self.cluster.cancelled.append(self.name)


class FakeCluster:
    """Plays a list of snapshots; the last one stays."""

    def __init__(self, *snapshots, refused=()):
        self.snapshots = list(snapshots)
        self.refused = refused
        self.submitted, self.cancelled = [], []

    def status(self):
        return self.snapshots.pop(0) if len(self.snapshots) > 1 else self.snapshots[0]

    def submit(self, job, *, resume=False):
        if job.name in self.refused:
            raise JobError(f"job {job.name!r} cannot run")
        self.submitted.append((job.name, resume))
        return FakeRun(self, job.name)

    def trace(self):
        return Trace((lease("a"), lease("other")), (iteration("a"),))

    def plan(self, newest=None):
        assert newest in {None, 0}
        return {"timelines": []}


def quiet():
    return Console(file=io.StringIO())


def test_jobs_are_watched_until_all_have_ended(monkeypatch):
    monkeypatch.setattr(running, "POLL_S", 0.0)
    moved = (Traffic(Tier.HOST, Tier.DEVICE, 7, 7_000_000, 0.1),)
    cluster = FakeCluster(
        snapshot(plan=PlanStatus(num_solves=4)),
        snapshot(jobs=(job("a"), job("b"))),
        snapshot(jobs=(job("a", state=JobState.FINISHED), job("b"))),
        snapshot(
            jobs=(job("a", state=JobState.FINISHED), job("b", state=JobState.FAILED)),
            groups=(group(traffic=moved),),
            plan=replace(PLAN, num_solves=6),
        ),
    )
    ran = run_jobs(cluster, [spec("a"), spec("b")], quiet(), title="together")
    assert {name: status.state for name, status in ran.statuses.items()} == {
        "a": JobState.FINISHED,
        "b": JobState.FAILED,
    }
    assert [record.job for record in ran.stretch.leases] == ["a"]
    assert [(t.num_moves, t.num_bytes) for t in ran.stretch.traffic] == [(2, 2_000_000)]
    assert ran.plan.num_solves == 2


def test_resumed_jobs_go_on_from_the_store(monkeypatch):
    monkeypatch.setattr(running, "POLL_S", 0.0)
    cluster = FakeCluster(snapshot(jobs=(job("a", state=JobState.FINISHED),)))
    run_jobs(cluster, [spec("a")], quiet(), title="", resume=True)
    assert cluster.submitted == [("a", True)]


def test_a_refused_job_takes_those_before_it_back():
    cluster = FakeCluster(snapshot(), refused={"b"})
    with pytest.raises(JobError, match="'b'"):
        run_jobs(cluster, [spec("a"), spec("b"), spec("c")], quiet(), title="")
    assert cluster.submitted == [("a", False)]
    assert cluster.cancelled == ["a"]


def test_a_plan_is_fetched_once_it_is_adopted():
    tape, fetched = PlanTape(), []

    def source():
        fetched.append(len(fetched))
        return {"in_force": {"plan": {"number": len(fetched)}}}

    for adopted in (None, 1.0, 1.0, 2.0):
        tape.note(snapshot(plan=plan(adopted, "a")), source)
    assert [(p.adopted_s, p.plan["number"]) for p in tape.plans] == [(1.0, 1), (2.0, 2)]


def test_the_plan_that_served_the_most_jobs_is_the_one_told_about():
    tape = PlanTape()
    for adopted, jobs in ((1.0, "a"), (2.0, "abc"), (3.0, "abc"), (4.0, "c"), (5.0, "")):
        tape.note(snapshot(plan=plan(adopted, *jobs)), lambda adopted=adopted: {"at": adopted})
    status, data = tape.best()
    assert status.adopted_s == 3.0
    assert data == {"at": 3.0}


def test_without_a_plan_none_is_told_about():
    assert PlanTape().best() == (PlanStatus(), {})
