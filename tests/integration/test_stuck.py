"""What hangs is found, named and ended; others do not notice."""

import os
import signal
import threading
from dataclasses import dataclass

import dask
import psutil
import pytest

import plexrl
from dataflow.samples import Sample
from tests.integration.test_deaths import TIMEOUT_S, wait_for_iteration

pytestmark = pytest.mark.slow


@dataclass(frozen=True)
class Hanging:
    """A verifier that never returns."""

    def __call__(self, _sample: Sample) -> float:
        threading.Event().wait()
        return 0.0


@pytest.fixture
def impatient(tmp_path, host_budget_bytes):
    limits = {"plexrl.engines.heartbeat_timeout_s": 10.0, "plexrl.cluster.task_timeout_s": 5.0}
    with (
        dask.config.set(limits),
        plexrl.LocalCluster(
            groups=1, cpu_workers=1, store=tmp_path / "store", host_budget_bytes=host_budget_bytes
        ) as cluster,
    ):
        yield cluster


def test_stuck_engines_and_rewards_end_and_the_rest_goes_on(impatient, small_job, gate, tmp_path):
    held = gate(5)
    run = impatient.submit(small_job("job", iterations=6, reward=held))
    wait_for_iteration(run, 2)
    before = impatient.status().groups[0].engine_pid
    os.kill(before, signal.SIGSTOP)
    held.open()
    hanging = impatient.submit(small_job("hanging", reward=Hanging()))
    failed = hanging.wait(TIMEOUT_S)
    assert failed.state == "failed"
    assert failed.error.startswith("TaskTimeoutError: task reward-i0")
    assert "ran for more than 5 s" in failed.error
    assert run.result(TIMEOUT_S).iteration == 6
    assert not psutil.pid_exists(before)
    calm = impatient.submit(small_job("calm", iterations=6))
    calm.result(TIMEOUT_S)
    assert run.export(tmp_path / "job") == calm.export(tmp_path / "calm")
    assert [row["iteration"] for row in run.metrics()] == list(range(6))
    assert impatient.status().num_errors == 0
