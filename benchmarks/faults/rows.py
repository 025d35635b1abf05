"""Rows of the table of failures whose processes belong to one cluster on this machine."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import cycle

import psutil

import plexrl
from benchmarks.faults import victims
from benchmarks.faults.jobs import Yard, yard
from benchmarks.faults.toll import Toll
from benchmarks.faults.victims import Moment, Scene, active
from plexrl.errors import JobError

PAUSE_S = 0.6
"""Longest random pause before a kill: a few iterations of all jobs."""
EVERYWHERE = (
    Moment.ANY,
    Moment.ROLLOUT,
    Moment.TRAIN,
    Moment.COMMIT,
    Moment.ATTACH,
    Moment.BETWEEN,
    Moment.PREFETCH,
    Moment.YIELDED,
)

KINDS = {victims.VERIFIER: ("verifier", "isolated"), victims.TOOL: ("tool", "tool")}
"""Word in the command line of a child → what it is, and the kind of job that has it."""

Strike = Callable[["Site", Moment], "Hit | None"]
"""Hurts something; None if it was not there to be hurt."""


@dataclass(frozen=True, slots=True)
class Hit:
    """One fault."""

    moment: str
    jobs: frozenset[str]
    """Jobs that must recover from it."""
    at_s: float
    """On the clock of `time.monotonic`."""
    num_iterations: int = 1
    """Iterations they must commit before the next fault."""


@dataclass(frozen=True, slots=True)
class Site:
    """A cluster with jobs, in which faults strike."""

    yard: Yard
    cluster: plexrl.LocalCluster
    name: str
    chance: random.Random

    def busy_group(self) -> tuple[Scene, frozenset[str]] | None:
        """A group with jobs that has a worker, and those jobs; None if there is none now."""
        status = self.cluster.status()
        jobs = active(status)
        groups = [
            g
            for g in status.groups
            if g.worker and any(victims.has_group(job, g.name) for job in jobs.values())
        ]
        if not groups:
            return None
        group = self.chance.choice(groups)
        try:
            pid = victims.pid_of(self.cluster, group.worker)
        except (OSError, ValueError, KeyError):
            return None
        scene = Scene(self.cluster, self.yard.scratch(self.name), group.name, pid)
        return scene, self.jobs_on(group.name)

    def jobs_on(self, group: str) -> frozenset[str]:
        """Jobs that are placed on a group."""
        jobs = active(self.cluster.status())
        return frozenset(name for name, job in jobs.items() if victims.has_group(job, group))

    def ordinary_workers(self) -> list[str]:
        """Addresses of the workers without a group."""
        groups = {group.worker for group in self.cluster.status().groups}
        workers = self.cluster.client.scheduler_info(n_workers=-1)["workers"]
        return sorted(set(workers) - groups)


def strike_engine(site: Site, moment: Moment) -> Hit | None:
    """Kill the engine of a group."""
    return _strike_engine(site, moment, signal.SIGKILL)


def stop_engine(site: Site, moment: Moment) -> Hit | None:
    """Stop the engine of a group: it lives, but does nothing any more."""
    return _strike_engine(site, moment, signal.SIGSTOP)


def _strike_engine(site: Site, moment: Moment, number: signal.Signals) -> Hit | None:
    found = site.busy_group()
    if found is None:
        return None
    scene, jobs = found
    engine = victims.soon(lambda: victims.children(scene.worker_pid, victims.ENGINE), 5.0)
    if engine is None:
        return None
    came = scene.wait(moment)
    return _send(engine, number, moment if came else Moment.ANY, jobs)


def strike_group_worker(site: Site, moment: Moment) -> Hit | None:
    """Kill the worker of a group; its nanny starts another."""
    found = site.busy_group()
    if found is None:
        return None
    scene, jobs = found
    came = scene.wait(moment)
    worker = psutil.Process(scene.worker_pid)
    return _send(worker, signal.SIGKILL, moment if came else Moment.ANY, jobs)


def strike_ordinary_worker(site: Site, moment: Moment) -> Hit | None:
    """Kill a worker with drivers, rewards and tools."""
    found, workers = site.busy_group(), site.ordinary_workers()
    if found is None or not workers:
        return None
    try:
        pid = victims.pid_of(site.cluster, site.chance.choice(workers))
    except (OSError, ValueError, KeyError):
        return None
    came = found[0].wait(moment)
    jobs = frozenset(active(site.cluster.status()))
    return _send(psutil.Process(pid), signal.SIGKILL, moment if came else Moment.ANY, jobs)


def strike_solver(site: Site, moment: Moment) -> Hit | None:
    """Kill the process that plans, or the one that solves for it."""
    del moment
    me, is_planner = psutil.Process().pid, site.chance.random() < 0.5
    site.cluster.replan("to have a solver to kill")

    def found() -> list[psutil.Process]:
        planners = victims.children(me, victims.PLANNER)
        if is_planner:
            return planners
        return [child for p in planners for child in victims.children(p.pid, victims.SOLVER)]

    child = victims.soon(found, 3.0)
    if child is None:
        return None
    time.sleep(site.chance.uniform(0, 0.5))
    return _send(child, signal.SIGKILL, Moment.ANY, frozenset(active(site.cluster.status())))


def strike_reward(site: Site, moment: Moment) -> Hit | None:
    """Kill a process that judges or computes for a sample."""
    del moment
    word = site.chance.choice(list(KINDS))
    try:
        pids = [victims.pid_of(site.cluster, worker) for worker in site.ordinary_workers()]
    except (OSError, ValueError, KeyError):
        return None
    child = victims.soon(lambda: [c for pid in pids for c in victims.children(pid, word)], 2.0)
    if child is None:
        return None
    name, kind = KINDS[word]
    jobs = frozenset(job for job in active(site.cluster.status()) if kind in job.split("-"))
    # A sample is judged again after one death, not after two, and the iteration that commits next
    # may be the one before.
    return _send(child, signal.SIGKILL, name, jobs, num_iterations=2)


def strike_move(site: Site, moment: Moment) -> Hit | None:
    """Move a job, and kill the worker it leaves, the one it goes to, or one with drivers."""
    del moment
    status = site.cluster.status()
    names = sorted(name for name, job in active(status).items() if job.iteration)
    workers = {group.name: group.worker for group in status.groups if group.worker}
    if not names or len(workers) < 2:
        return None
    name = site.chance.choice(names)
    home = active(status)[name].group.partition("+")[0]
    target = site.chance.choice([group for group in workers if group != home])
    what = site.chance.choice(("source", "target", "driver"))
    where = {"source": home, "target": target, "driver": ""}[what]
    address = workers[where] if where else site.chance.choice(site.ordinary_workers())
    try:
        pid = victims.pid_of(site.cluster, address)
        site.cluster.run(name).move(target, now=site.chance.random() < 0.5)
    except (JobError, OSError, ValueError, KeyError, IndexError):
        # It has ended meanwhile, or the worker has.
        return None
    time.sleep(site.chance.uniform(0, PAUSE_S / 2))
    jobs = site.jobs_on(where) if where else frozenset(active(site.cluster.status()))
    return _send(psutil.Process(pid), signal.SIGKILL, what, jobs | {name})


def _send(
    process: psutil.Process,
    number: signal.Signals,
    moment: str,
    jobs: frozenset[str],
    num_iterations: int = 1,
) -> Hit | None:
    with suppress(psutil.NoSuchProcess):
        process.send_signal(number)
        return Hit(str(moment), jobs, time.monotonic(), num_iterations)
    return None


def strike_while_jobs_run(
    toll: Toll, strike: Strike, moments: Sequence[Moment], num_kills: int, seed: int
) -> None:
    """Strike in a cluster of its own."""
    ground, store = yard(toll.progress), f"{toll.row}-store"
    with ground.cluster(store) as cluster:
        site = Site(ground, cluster, store, random.Random(f"{toll.row} {seed}"))
        strike_in(site, toll, strike, moments, num_kills)


def strike_in(
    site: Site, toll: Toll, strike: Strike, moments: Sequence[Moment], num_kills: int
) -> None:
    """Run jobs, round after round, until so many faults have struck; audit every job."""
    upcoming, round_index = cycle(moments), 0
    while toll.kills.total() < num_kills and not toll.is_over():
        toll.wait_until_whole(site.cluster)
        jobs = site.yard.jobs(f"{toll.row}-{round_index}")
        runs = [(job, site.cluster.submit(job)) for job in jobs]
        _strike_round(site, strike, upcoming, toll, num_kills)
        toll.audit(site.yard, site.cluster, runs)
        round_index += 1
    toll.num_plugin_errors += site.cluster.status().num_errors


def _strike_round(
    site: Site, strike: Strike, moments: Iterable[Moment], toll: Toll, num_kills: int
) -> None:
    while toll.kills.total() < num_kills and active(site.cluster.status()) and not toll.is_over():
        moment = next(iter(moments))
        if moment is Moment.ANY:
            time.sleep(site.chance.uniform(0, PAUSE_S))
        hit = strike(site, moment)
        if hit is not None:
            toll.kills[hit.moment] += 1
            toll.progress(f"{toll.row}: {toll.kills.total()} of {num_kills}, {hit.moment}")
            toll.note_recovery(site.cluster, hit.jobs, hit.at_s, hit.num_iterations)
