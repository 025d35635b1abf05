"""Kills the process of scheduler, nannies and client; what was committed goes on in another life.

The first life submits jobs (`benchmarks.faults.life`), the later ones are ``plexrl resume``.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import psutil

import plexrl
from benchmarks.faults.jobs import Yard, yard
from benchmarks.faults.toll import Toll
from benchmarks.faults.victims import is_half_written
from dataflow.jobs import JobSpec
from plexrl.runtime.registry import JobRegistry

GONE_TIMEOUT_S = 60.0
"""Seconds within which everything that a killed process started must have ended."""
BEGIN_TIMEOUT_S = 300.0
POLL_S = 0.01
KILLS_A_ROUND = 3


def strike(toll: Toll, num_kills: int, seed: int) -> None:
    """Run jobs in lives that are killed; the last one of a round finishes them; audit."""
    ground, chance = yard(toll.progress), random.Random(f"{toll.row} {seed}")
    round_index = 0
    while toll.kills.total() < num_kills and not toll.is_over():
        prefix = f"{toll.row}-{round_index}"
        store = ground.scratch(f"{prefix}-store")
        arguments: Sequence[str] = ("benchmarks.faults.life", str(store), ground.base, prefix)
        num_in_round = min(KILLS_A_ROUND, num_kills - toll.kills.total())
        for index in range(num_in_round):
            if index and (toll.is_over() or not JobRegistry(store).unfinished()):
                break
            _one_life(toll, store, arguments, chance)
            arguments = ("plexrl", "resume", str(store), "--groups", "2", "--json")
            toll.progress(f"{toll.row}: {toll.kills.total()} of {num_kills}")
        _audit(toll, ground, store, ground.jobs(prefix))
        round_index += 1


def _one_life(toll: Toll, store: Path, arguments: Sequence[str], chance: random.Random) -> None:
    """Start a process, kill it after a new commit, and wait until all it started has ended."""
    before, started_s = num_commits(store), time.monotonic()
    with _process(arguments, store.parent) as process:
        while num_commits(store) <= before and process.poll() is None:
            if time.monotonic() - started_s > BEGIN_TIMEOUT_S:
                toll.num_hangs += 1
                toll.progress(f"{toll.row}: nothing was committed by {arguments}")
                break
            time.sleep(POLL_S)
        if before:
            toll.recovery_s.append(time.monotonic() - started_s)
        moment = _wait_for_moment(store, chance)
        family = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(signal.SIGKILL)
        process.wait()
    toll.kills[moment] += 1
    toll.count_left(family, GONE_TIMEOUT_S)


def _wait_for_moment(store: Path, chance: random.Random) -> str:
    time.sleep(chance.uniform(0, 1))
    if chance.random() < 0.5:
        return "any"
    deadline_s = time.monotonic() + 5.0
    while not is_half_written(store):
        if time.monotonic() > deadline_s:
            return "any"
        time.sleep(POLL_S)
    return "commit"


def _process(arguments: Sequence[str], folder: Path) -> subprocess.Popen[bytes]:
    # The folder for what it writes is not the one it is started from.
    paths = [str(Path(plexrl.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    return subprocess.Popen(
        [sys.executable, "-m", *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def num_commits(store: Path) -> int:
    """Highest version of each job in a store, added up."""
    newest: dict[Path, int] = {}
    for document in (store / "states").glob("*/*/v*/zarr.json"):
        version, model = document.parent, document.parent.parent
        newest[model] = max(newest.get(model, 0), int(version.name[1:]))
    return sum(newest.values())


def _audit(toll: Toll, ground: Yard, store: Path, jobs: Sequence[JobSpec]) -> None:
    """Let the jobs of a store finish, and look at them."""
    with ground.cluster(store.name) as cluster:
        runs = [(job, cluster.submit(job, resume=True)) for job in jobs]
        toll.audit(ground, cluster, runs)
        toll.num_plugin_errors += cluster.status().num_errors
