"""Several real jobs on one group: what they learn is what they learn alone."""

import itertools
import os
import signal
import time

import pytest

import plexrl
from plexrl.core.states import Tier
from plexrl.core.status import JobState
from tests.integration.rewards import CAPITALS, DIGITS, SMALL

pytestmark = pytest.mark.slow
TIMEOUT_S = 120.0


def run_alone(cluster, job, folder):
    run = cluster.submit(job)
    assert run.result(TIMEOUT_S).iteration == job.iterations
    return run.export(folder)


def traffic(cluster, source, target):
    (group,) = cluster.status().groups
    return sum(t.num_moves for t in group.traffic if (t.source, t.target) == (source, target))


def test_jobs_that_share_a_group_end_with_the_weights_of_running_alone(
    cluster, small_job, tmp_path
):
    tasks = {
        "up": {"task": "ascending", "reward": DIGITS},
        "late": {"task": "judged", "reward": CAPITALS, "task_options": {"median_s": 0.1}},
        "tool": {"task": "calculator", "reward": SMALL},
    }
    alone = {
        name: run_alone(cluster, small_job(f"{name}-alone", **task), tmp_path / f"{name}-alone")
        for name, task in tasks.items()
    }
    reads_before = traffic(cluster, Tier.STORE, Tier.HOST)
    runs = {name: cluster.submit(small_job(name, **task)) for name, task in tasks.items()}
    for run in runs.values():
        run.result(TIMEOUT_S)
    shared = {name: run.export(tmp_path / name) for name, run in runs.items()}
    assert shared == alone
    assert len(set(shared.values())) == len(tasks)
    num_reads = traffic(cluster, Tier.STORE, Tier.HOST) - reads_before
    waited_for = [lease for lease in cluster.trace().leases if lease.swap_source == Tier.STORE]
    # What no function waited for was read ahead, as the order of next uses wanted it.
    assert num_reads > sum(lease.job in tasks for lease in waited_for)


def test_leases_of_a_group_never_overlap(cluster, small_job):
    runs = [cluster.submit(small_job(f"overlap-{i}", seed=i)) for i in range(2)]
    for run in runs:
        run.result(TIMEOUT_S)
    leases = sorted(cluster.trace().leases, key=lambda lease: lease.started_s)
    assert leases
    for before, after in itertools.pairwise(leases):
        assert after.started_s >= before.ended_s, (before, after)


def test_a_killed_engine_costs_no_iteration_and_changes_no_bit(cluster, small_job, gate, tmp_path):
    expected = run_alone(cluster, small_job("calm", iterations=6), tmp_path / "calm")
    held = gate(5)
    run = cluster.submit(small_job("killed", iterations=6, reward=held))
    wait_for_iteration(run, 2)
    (group,) = cluster.status().groups
    os.kill(group.engine_pid, signal.SIGKILL)
    held.open()
    assert run.result(TIMEOUT_S).iteration == 6
    assert run.export(tmp_path / "killed") == expected
    assert [row["iteration"] for row in run.metrics()] == list(range(6))
    assert cluster.status().groups[0].num_engine_starts > group.num_engine_starts


def test_a_cancelled_job_ends_and_its_group_goes_on(cluster, small_job):
    run = cluster.submit(small_job("endless", iterations=10_000))
    wait_for_iteration(run, 1)
    run.cancel()
    assert run.wait(TIMEOUT_S).state is JobState.CANCELLED
    cluster.submit(small_job("after", iterations=2)).result(TIMEOUT_S)


def wait_for_iteration(run, iteration):
    deadline = time.monotonic() + TIMEOUT_S
    while run.status().iteration < iteration:
        assert not run.status().state.is_terminal, run.status()
        assert time.monotonic() < deadline, run.status()
        time.sleep(0.02)


def test_jobs_cancelled_under_their_lease_leave_the_group_free(cluster, small_job):
    big = {"num_prompts": 32, "num_samples": 8, "iterations": 10_000}
    for index in range(3):
        run = cluster.submit(small_job(f"held-{index}", **big))
        wait_for_lease(run, "actor.train.0")
        run.cancel()
    cluster.submit(small_job("after-held", iterations=2)).result(TIMEOUT_S)
    wait_until(lambda: not any("held-" in ref for ref in resident(cluster, Tier.HOST)))


def resident(cluster, tier):
    return cluster.status().groups[0].resident.get(tier, ())


def wait_for_lease(run, op):
    wait_until(lambda: (run.status().phase, run.status().waits_for) == (op, ""))


def wait_until(is_met):
    deadline = time.monotonic() + TIMEOUT_S
    while not is_met():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_second_client_finds_the_jobs_and_the_services_of_the_first(cluster, small_job, gate):
    from distributed import Client

    held = gate(3)
    run = cluster.submit(small_job("attached", iterations=4, reward=held))
    wait_for_iteration(run, 1)
    before = cluster.status().groups[0].num_engine_starts
    with Client(cluster.client.scheduler.address, set_as_default=False) as client:
        other = plexrl.attach(client)
        assert "attached" in other.jobs()
        held.open()
        assert other.run("attached").result(TIMEOUT_S).iteration == 4
    assert cluster.status().groups[0].num_engine_starts == before
