"""The first life of some jobs: ``python -m benchmarks.faults.life STORE MODEL PREFIX``."""

from __future__ import annotations

import sys

import plexrl
from benchmarks.faults.jobs import MIX, RESULT_TIMEOUT_S, make_job


def main(store: str, base: str, prefix: str) -> None:
    """Submit one job of every kind and wait for all."""
    with plexrl.LocalCluster(groups=2, store=store, dashboard_address=None) as cluster:
        runs = [cluster.submit(make_job(base, kind, seed, prefix)) for kind, seed in MIX]
        for run in runs:
            run.result(RESULT_TIMEOUT_S)


if __name__ == "__main__":
    main(*sys.argv[1:])
