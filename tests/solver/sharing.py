"""Small workloads and markets for tests of arrangements and policies."""

from __future__ import annotations

from solver.arrangements import Arrangement, Market
from solver.workloads import Phase, Role, Workload

SPLIT = Market(Arrangement.SPLIT, train_price=5.0, rollout_price=2.0)
COLOCATED = Market(Arrangement.COLOCATED, train_price=1.0)
POOL = Market(Arrangement.PRIVATE_ROLLOUT, train_price=4.0, rollout_price=2.0)


def loop(name, rollout_s=60.0, train_s=30.0, wait_s=0.0, *, limit=1.5, cv=0.1, memory=0):
    phases = [Phase("rollout", Role.ROLLOUT, rollout_s, cv)]
    if wait_s:
        phases.append(Phase("wait", Role.NONE, wait_s, cv))
    phases.append(Phase("train", Role.TRAIN, train_s, cv))
    return Workload(name, tuple(phases), limit, memory)
