"""Kills the workers without a group while the driver of a job starts in one of them."""

from __future__ import annotations

import os
import random
import signal
import time

import psutil

from benchmarks.faults.jobs import MIX, make_job, yard
from benchmarks.faults.rows import Site
from benchmarks.faults.toll import Toll
from plexrl.runtime.asking import ask_workers

KIND, SEED = MIX[0]
"""Of the jobs that are submitted."""
STARTING_S = 1.0
"""Longest pause after a submission: by then a driver has opened its models."""


def strike(toll: Toll, num_kills: int, seed: int) -> None:
    """Submit jobs one after the other; each must find a driver again."""
    ground, chance = yard(toll.progress), random.Random(f"{toll.row} {seed}")
    store = f"{toll.row}-store"
    with ground.cluster(store) as cluster:
        site = Site(ground, cluster, store, chance)
        for index in range(num_kills):
            if toll.is_over():
                break
            job = make_job(ground.base, KIND, SEED, f"{toll.row}-{index}")
            pids = ask_workers(cluster.client, os.getpid, workers=site.ordinary_workers()).values()
            run = cluster.submit(job)
            time.sleep(chance.uniform(0, STARTING_S))
            for pid in pids:
                psutil.Process(pid).send_signal(signal.SIGKILL)
            struck_s = time.monotonic()
            toll.kills["starting"] += 1
            toll.progress(f"{toll.row}: {toll.kills.total()} of {num_kills}")
            toll.note_recovery(cluster, [job.name], struck_s)
            toll.audit(ground, cluster, [(job, run)])
        toll.num_plugin_errors += cluster.status().num_errors
