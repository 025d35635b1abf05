"""Real processes are killed; jobs go on and learn the same."""

import os
import signal
import time

import dask
import psutil
import pytest

import plexrl

pytestmark = pytest.mark.slow
TIMEOUT_S = 120.0
ITERATIONS = 6


def processes_of(cluster):
    """Processes of all workers, and what they started."""
    workers = [psutil.Process(pid) for pid in cluster.client.run(os.getpid).values()]
    return workers + [child for worker in workers for child in worker.children(recursive=True)]


@pytest.fixture(scope="module")
def own_cluster(tmp_path_factory, host_budget_bytes):
    folder = tmp_path_factory.mktemp("deaths")
    scratch = folder / "scratch"
    with (
        dask.config.set(temporary_directory=str(scratch)),
        plexrl.LocalCluster(
            groups=1, cpu_workers=2, store=folder / "store", host_budget_bytes=host_budget_bytes
        ) as cluster,
    ):
        yield cluster
        assert cluster.status().num_errors == 0
        family = processes_of(cluster)
        assert len(family) >= 3
    assert psutil.wait_procs(family, TIMEOUT_S)[1] == []
    assert [path for path in scratch.rglob("worker-*") if path.is_dir()] == []


def wait_for_iteration(run, iteration):
    deadline = time.monotonic() + TIMEOUT_S
    while run.status().iteration < iteration:
        assert not run.status().state.is_terminal, run.status()
        assert time.monotonic() < deadline, run.status()
        time.sleep(0.02)


def kill_worker(cluster, address):
    (pid,) = cluster.client.run(os.getpid, workers=[address]).values()
    os.kill(pid, signal.SIGKILL)


@pytest.fixture(scope="module")
def expected(cluster, small_job, tmp_path_factory):
    run = cluster.submit(small_job("undying", iterations=ITERATIONS))
    run.result(TIMEOUT_S)
    return run.export(tmp_path_factory.mktemp("undying") / "model")


def test_a_killed_group_worker_costs_no_iteration_and_changes_no_bit(
    own_cluster, small_job, expected, gate, tmp_path
):
    held = gate(ITERATIONS - 1)
    run = own_cluster.submit(small_job("job", iterations=ITERATIONS, reward=held))
    wait_for_iteration(run, 2)
    kill_worker(own_cluster, own_cluster.status().groups[0].worker)
    held.open()
    assert run.result(TIMEOUT_S).iteration == ITERATIONS
    assert run.export(tmp_path / "job") == expected
    assert [row["iteration"] for row in run.metrics()] == list(range(ITERATIONS))


def test_a_killed_driver_is_started_again_and_goes_on(
    own_cluster, small_job, expected, gate, tmp_path
):
    held = gate(ITERATIONS - 1)
    run = own_cluster.submit(small_job("driven", iterations=ITERATIONS, reward=held))
    wait_for_iteration(run, 2)
    group = own_cluster.status().groups[0].worker
    for address in set(own_cluster.client.scheduler_info(n_workers=-1)["workers"]) - {group}:
        kill_worker(own_cluster, address)
    held.open()
    assert run.result(TIMEOUT_S).iteration == ITERATIONS
    assert run.export(tmp_path / "driven") == expected
    assert [row["iteration"] for row in run.metrics()] == list(range(ITERATIONS))


def test_a_new_cluster_on_the_same_store_goes_on(
    small_job, expected, host_budget_bytes, gate, tmp_path
):
    where = {"store": tmp_path / "store", "host_budget_bytes": host_budget_bytes}
    held = gate(ITERATIONS - 1)
    job = small_job("job", iterations=ITERATIONS, reward=held)
    with plexrl.LocalCluster(groups=1, **where) as first:
        run = first.submit(job)
        wait_for_iteration(run, 2)
        held.open()
    with plexrl.LocalCluster(groups=1, **where) as second:
        refused = second.submit(job).wait(TIMEOUT_S)
        assert refused.state == "failed"
        assert "resume" in refused.error
        run = second.submit(job, resume=True)
        assert run.result(TIMEOUT_S).state == "finished"
        assert run.export(tmp_path / "job") == expected
        rows = run.metrics()
        assert [row["iteration"] for row in rows] == list(range(ITERATIONS))
        assert [row["started_s"] < 0 for row in rows] == sorted(
            (row["started_s"] < 0 for row in rows), reverse=True
        )
        assert all("reward_mean" in row for row in rows)
