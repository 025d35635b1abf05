"""The cluster of a command: on this machine, for as long as the command runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import dask.config

from plexrl.cli import undisturbed
from plexrl.runtime.cluster import LocalCluster

_PRELOAD = "distributed.worker.preload"


@contextmanager
def local_cluster(
    *, groups: int, store: Path, host_budget_bytes: int | None = None
) -> Iterator[LocalCluster]:
    """A `LocalCluster` whose workers leave Ctrl-C to the command.

    Parameters
    ----------
    groups
        Number of groups.
    store
        Folder of the Zarr store.
    host_budget_bytes
        Host memory for states, per group; by default what Dask's configuration says.
    """
    preload = [*dask.config.get(_PRELOAD), undisturbed.__name__]
    with dask.config.set({_PRELOAD: preload}):
        cluster = LocalCluster(groups=groups, store=store, host_budget_bytes=host_budget_bytes)
    with cluster:
        yield cluster
