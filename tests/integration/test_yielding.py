"""A long rollout gives its group up in the middle, and the job learns what it learns alone.

Also where what it had drawn dies before it goes on.
"""

import itertools
import os
import signal

import pytest

import plexrl
from benchmarks.faults.victims import Moment, Scene, pid_of
from solver.trace import Outcome
from tests.integration.rewards import DIGITS
from tests.integration.test_deaths import wait_for_iteration

pytestmark = pytest.mark.slow
TIMEOUT_S = 180.0
LONG = {"num_prompts": 8, "num_samples": 8, "max_new_tokens": 160, "iterations": 3}
SHORT = {"num_prompts": 4, "num_samples": 4, "iterations": 10_000}
"""Longer than any other job; it is cancelled when what it was there for is over."""
EAGER = plexrl.PlanningConfig(
    period_s=30.0, budget_s=2.0, yield_gain=0.1, yield_quantum_s=0.005, max_yields=4
)
"""A rollout yields whenever something is ready."""


def finish(cluster, job, folder):
    run = cluster.submit(job)
    run.result(TIMEOUT_S)
    return run.export(folder)


@pytest.fixture(scope="module")
def eager(tmp_path_factory, host_budget_bytes):
    store = tmp_path_factory.mktemp("eager")
    with plexrl.LocalCluster(
        groups=1, store=store, host_budget_bytes=host_budget_bytes, planning=EAGER
    ) as cluster:
        yield cluster
        assert cluster.status().num_errors == 0


def test_a_rollout_yields_to_a_shorter_job_and_changes_no_bit(eager, cluster, small_job, tmp_path):
    alone = finish(cluster, small_job("yields-alone", reward=DIGITS, **LONG), tmp_path / "alone")
    other = eager.submit(small_job("yielded-to", reward=DIGITS, **SHORT))
    run = eager.submit(small_job("yields", reward=DIGITS, **LONG))
    run.result(TIMEOUT_S)
    other.cancel()
    assert run.export(tmp_path / "shared") == alone

    leases = sorted(eager.trace().leases, key=lambda lease: lease.started_s)
    for before, after in itertools.pairwise(leases):
        assert after.started_s >= before.ended_s
    parts = [lease for lease in leases if lease.job == "yields" and "rollout" in lease.op]
    yielded = [lease for lease in parts if lease.outcome is Outcome.YIELDED]
    assert yielded
    for lease in yielded:
        rest = [part for part in parts if part.id == lease.id and part.started_s > lease.ended_s]
        between = [
            other
            for other in leases
            if other.job == "yielded-to" and lease.ended_s <= other.started_s < rest[0].started_s
        ]
        assert between
    done = [lease for lease in parts if lease.outcome is Outcome.DONE]
    assert sorted(lease.iteration for lease in done) == list(range(LONG["iterations"]))


def struck(scene, what):
    """Kill a process while a rollout waits to go on; whether it was in time."""
    cluster = scene.cluster
    assert scene.wait(Moment.YIELDED)
    waiting = set(scene.yielded())
    (group,) = cluster.status().groups
    os.kill({"engine": group.engine_pid, "worker": scene.worker_pid}[what], signal.SIGKILL)
    now_s = cluster.status().now_s
    last = {lease.id: lease for lease in cluster.trace().leases if lease.started_s < now_s}
    return any(last[function].outcome is Outcome.YIELDED for function in waiting)


def test_what_a_rollout_had_drawn_may_die_before_it_goes_on(eager, cluster, small_job, tmp_path):
    size = {"num_prompts": 4, "num_samples": 4, "max_new_tokens": 96, "iterations": 8}
    alone = finish(cluster, small_job("struck-alone", reward=DIGITS, **size), tmp_path / "alone")
    run = eager.submit(small_job("struck", reward=DIGITS, **size))
    others = eager.submit(small_job("others", reward=DIGITS, **SHORT))
    # The worker first: with it dies what the service knew of the rollout.
    for what in ("worker", "engine"):
        while True:
            wait_for_iteration(run, run.status().iteration + 1)
            (group,) = eager.status().groups
            scene = Scene(eager, tmp_path, group.name, pid_of(eager, group.worker))
            if struck(scene, what):
                break
    others.cancel()
    assert run.result(TIMEOUT_S).iteration == size["iterations"]
    assert [row["iteration"] for row in run.metrics()] == list(range(size["iterations"]))
    assert run.export(tmp_path / "struck") == alone
