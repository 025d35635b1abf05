"""A store that is full, read-only, slow or gone under a cluster at work."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import plexrl
from benchmarks.faults.jobs import Yard, yard
from benchmarks.faults.toll import Toll
from benchmarks.faults.victims import active

SLOW_S = 0.05
"""Every write to a slow disk takes this much longer."""
NOTICE_S = 240.0
"""Seconds within which every job must wait for the store, with the reason to be seen."""
POLL_S = 0.05
KINDS = ("full", "read_only", "gone", "slow")
_WRITE: Any = os.pwritev


def break_writes(number: int) -> None:
    """Have every write of a chunk in this process fail with this error."""

    def refuse(*_: object) -> int:
        raise OSError(number, os.strerror(number))

    os.pwritev = refuse


def slow_writes() -> None:
    """Have every write of a chunk in this process take longer."""

    def slowly(*arguments: object) -> int:
        time.sleep(SLOW_S)
        return int(_WRITE(*arguments))

    os.pwritev = slowly


def mend_writes() -> None:
    """Have writes of this process work again."""
    os.pwritev = _WRITE


@contextmanager
def _broken(
    cluster: plexrl.LocalCluster, fault: Callable[..., None], *arguments: int
) -> Iterator[None]:
    workers = [group.worker for group in cluster.status().groups]
    cluster.client.run(fault, *arguments, workers=workers)
    try:
        yield
    finally:
        cluster.client.run(mend_writes, workers=workers)


@contextmanager
def _gone(store: Path) -> Iterator[None]:
    away = store.with_name(store.name + "-away")
    store.rename(away)
    try:
        yield
    finally:
        away.rename(store)


def strike(toll: Toll, num_rounds: int) -> Mapping[str, float]:
    """Misuse the store of a cluster of its own in every way."""
    ground, name = yard(toll.progress), f"{toll.row}-store"
    with ground.cluster(name) as cluster:
        return strike_in(ground, cluster, toll, name, KINDS * num_rounds)


def strike_in(
    ground: Yard, cluster: plexrl.LocalCluster, toll: Toll, store: str, kinds: Sequence[str]
) -> Mapping[str, float]:
    """Run jobs while the store misbehaves in one way after the other; audit every job."""
    num_unexplained = 0
    for index, kind in enumerate(kinds):
        if toll.is_over():
            break
        jobs = ground.jobs(f"{toll.row}-{index}")
        runs = [(job, cluster.submit(job)) for job in jobs]
        toll.wait_until_begun(cluster, all)
        toll.kills[kind] += 1
        with _fault(cluster, ground.scratch(store), kind):
            if kind != "slow":
                num_unexplained += _wait_until_all_say_why(cluster, toll)
        toll.note_recovery(cluster, set(active(cluster.status())), time.monotonic())
        toll.progress(f"{toll.row}: {kind}")
        toll.audit(ground, cluster, runs)
    toll.num_plugin_errors += cluster.status().num_errors
    return {"pauses_without_reason": float(num_unexplained)}


@contextmanager
def _fault(cluster: plexrl.LocalCluster, store: Path, kind: str) -> Iterator[None]:
    faults = {
        "full": lambda: _broken(cluster, break_writes, errno.ENOSPC),
        "read_only": lambda: _broken(cluster, break_writes, errno.EROFS),
        "slow": lambda: _broken(cluster, slow_writes),
        "gone": lambda: _gone(store),
    }
    with faults[kind]():
        yield


def _wait_until_all_say_why(cluster: plexrl.LocalCluster, toll: Toll) -> int:
    """Wait until every job waits for the store; returns how many do not say so."""
    deadline_s = time.monotonic() + NOTICE_S
    while time.monotonic() < deadline_s:
        jobs = active(cluster.status()).values()
        if all(job.waits_for.startswith("the store: ") for job in jobs):
            return 0
        time.sleep(POLL_S)
    silent = [job for job in active(cluster.status()).values() if not job.waits_for]
    toll.progress(f"{toll.row}: {silent}")
    return len(silent)
