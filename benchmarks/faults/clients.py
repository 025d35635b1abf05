"""Kills clients: right after they submitted a job, while they wait for it, or on the way."""

from __future__ import annotations

import multiprocessing
import random
import time
from multiprocessing.connection import Connection

from distributed import Client

import plexrl
from benchmarks.faults.jobs import MIX, Yard, make_job, yard
from benchmarks.faults.toll import Toll
from dataflow.jobs import JobSpec

SUBMIT_TIMEOUT_S = 120.0
KIND, SEED = MIX[0]
"""Of the jobs that clients submit."""
CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload([__name__])


def submit_and_wait(
    address: str, base: str, seed: int, prefix: str, told: Connection[str, str]
) -> None:
    """Body of the client."""
    cluster = plexrl.attach(Client(address, set_as_default=False))
    told.send("connected")
    run = cluster.submit(make_job(base, KIND, seed, prefix))
    told.send("submitted")
    run.result()


def strike(toll: Toll, num_kills: int, seed: int) -> None:
    """Kill clients of a cluster of its own."""
    ground = yard(toll.progress)
    with ground.cluster(f"{toll.row}-store") as cluster:
        strike_in(ground, cluster, toll, num_kills, seed)


def strike_in(
    ground: Yard, cluster: plexrl.LocalCluster, toll: Toll, num_kills: int, seed: int
) -> None:
    """Kill clients one after the other; each job must go on and be found by its name."""
    chance = random.Random(f"{toll.row} {seed}")
    for index in range(num_kills):
        if toll.is_over():
            break
        prefix = f"{toll.row}-{index}"
        job = make_job(ground.base, KIND, SEED, prefix)
        moment = "submitted" if chance.random() < 0.7 else "connected"
        struck_s = _kill_a_client(cluster, ground.base, job, prefix, moment, chance)
        toll.kills[moment] += 1
        toll.progress(f"{toll.row}: {toll.kills.total()} of {num_kills}, {moment}")
        if job.name in cluster.jobs():
            toll.note_recovery(cluster, [job.name], struck_s)
            run = cluster.run(job.name)
        else:
            run = cluster.submit(job)
        toll.audit(ground, cluster, [(job, run)])
    toll.num_plugin_errors += cluster.status().num_errors


def _kill_a_client(
    cluster: plexrl.LocalCluster,
    base: str,
    job: JobSpec,
    prefix: str,
    moment: str,
    chance: random.Random,
) -> float:
    """Start a client, wait until it has come so far, and kill it; returns when."""
    ours, theirs = CONTEXT.Pipe()
    address = cluster.client.scheduler.address
    process = CONTEXT.Process(
        target=submit_and_wait, args=(address, base, job.seed, prefix, theirs)
    )
    process.start()
    theirs.close()
    while ours.poll(SUBMIT_TIMEOUT_S) and ours.recv() != moment:
        continue
    if moment == "submitted":
        time.sleep(chance.uniform(0, 0.5))
    process.kill()
    process.join()
    return time.monotonic()
