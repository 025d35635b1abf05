"""However a run ends, nothing of it goes on: no process, no shared memory, no scratch file."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from benchmarks.faults.lives import num_commits

pytestmark = pytest.mark.slow
TIMEOUT_S = 180.0
SHARED = re.compile(r"(/dev/shm/\S+)")


def shared_memory_of(processes):
    """Names in /dev/shm that these processes have mapped."""
    found = set()
    for process in processes:
        found |= set(SHARED.findall(Path(f"/proc/{process.pid}/maps").read_text()))
    return {Path(name) for name in found}


@pytest.fixture
def life(base, tmp_path):
    """A process that runs jobs on a cluster of its own, once it has committed something."""
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.faults.life", str(tmp_path / "store"), base, "life"],
        env={**os.environ, "DASK_TEMPORARY_DIRECTORY": str(scratch)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    deadline_s = time.monotonic() + TIMEOUT_S
    while not num_commits(tmp_path / "store"):
        assert process.poll() is None
        assert time.monotonic() < deadline_s
    yield process, scratch
    process.kill()
    process.wait()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_nothing_is_left_of_a_run_that_was_ended(life, number, tmp_path):
    process, scratch = life
    family = psutil.Process(process.pid).children(recursive=True)
    shared = shared_memory_of([psutil.Process(process.pid)])
    # As a terminal does with Ctrl-C, every process of the session is told.
    os.killpg(process.pid, number) if number == signal.SIGINT else process.kill()
    process.wait(TIMEOUT_S)
    assert psutil.wait_procs(family, TIMEOUT_S)[1] == []
    assert [name for name in shared if name.exists()] == []
    if number == signal.SIGINT:
        # Dask takes stale lock files away when it starts next.
        assert [path for path in scratch.rglob("worker-*") if path.is_dir()] == []
        versions = list((tmp_path / "store" / "states").glob("*/*/v*"))
        assert all((version / "zarr.json").exists() for version in versions)
