"""A real Dask scheduler with in-process workers: one group, one ordinary worker."""

import pytest
from distributed import Client, Scheduler, SpecCluster, Worker

from plexrl.runtime.gate import RESOURCE_PREFIX


@pytest.fixture(scope="module")
def dask_client():
    options = {"nthreads": 1, "memory_limit": 0, "host": "127.0.0.1", "dashboard": False}
    group = {**options, "resources": {f"{RESOURCE_PREFIX}g": 1}}
    cluster = SpecCluster(
        workers={
            "g": {"cls": Worker, "options": group},
            "cpu": {"cls": Worker, "options": {**options, "nthreads": 4}},
        },
        scheduler={
            "cls": Scheduler,
            "options": {"host": "127.0.0.1", "dashboard": False, "dashboard_address": ":0"},
        },
        silence_logs=50,
    )
    with cluster, Client(cluster, set_as_default=False) as client:
        yield client
