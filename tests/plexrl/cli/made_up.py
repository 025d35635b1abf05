"""Made-up leases, iterations and snapshots for the faces."""

from __future__ import annotations

from plexrl.core.states import Tier, Traffic
from plexrl.core.status import ClusterStatus, GroupStatus, JobState, JobStatus, PlanStatus
from solver.trace import IterationRecord, LeaseRecord


def lease(job="a", op="actor.rollout.0", iteration=0, ready=0.0, started=0.1, ended=1.0, **more):
    given = {"swap_s": 0.1, "swap_source": "host", "swap_bytes": 1000, **more}
    return LeaseRecord(
        id=f"{job}-{op}-{iteration}",
        job=job,
        model="actor",
        op=op,
        iteration=iteration,
        version=iteration,
        group="group-0",
        ready_s=ready,
        started_s=started,
        ended_s=ended,
        **given,
    )


def iteration(job="a", index=0, started=0.0, ended=1.0, reward=0.5):
    return IterationRecord(job, index, started, ended, (("reward_mean", reward), ("loss", 0.1)))


def job(name="a", **more):
    given = {
        "state": JobState.RUNNING,
        "iteration": 3,
        "phase": "actor.train.0",
        "waits_for": "",
        "reward_first": 0.3,
        "reward_last": 0.6,
        "slowdown_limit": 2.0,
        "ended_s": None,
        **more,
    }
    return JobStatus(
        name=name,
        group="group-0",
        iterations=10,
        metrics={},
        iteration_s=0.5,
        started_s=0.0,
        **given,
    )


def group(busy_s=0.0, **more):
    given = {
        "holder": "a",
        "function": "actor.train.0",
        "held_for_s": 0.4,
        "traffic": (Traffic(Tier.HOST, Tier.DEVICE, 5, 5_000_000, 0.1),),
        "host_used_bytes": 30_000_000,
        "host_budget_bytes": 60_000_000,
        **more,
    }
    return GroupStatus(
        name="group-0", worker="tcp://w", busy_s=busy_s, num_waiting=1, resident={}, **given
    )


PLAN = PlanStatus("optimal", 1.0, 0.9, "universal", True, 3, "job arrived", 2.0, {})


def snapshot(now_s=0.0, jobs=None, groups=None, plan=PLAN):
    return ClusterStatus(now_s, jobs or (job(),), groups or (group(),), plan)
