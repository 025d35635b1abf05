"""Attaches to a cluster somebody else runs, to look at it; never starts PlexRL there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import dask.config
from distributed import Client

from plexrl.errors import InputError, ServiceError
from plexrl.runtime.client import Cluster
from plexrl.runtime.plugin import PLUGIN_NAME

CONNECT_S = 10.0
"""Seconds a scheduler may take to answer: one that is there does so at once."""


@contextmanager
def attached(address: str | None) -> Iterator[Cluster]:
    """A cluster by the address of its Dask scheduler.

    Parameters
    ----------
    address
        For example ``tcp://10.0.0.1:8786``; None takes Dask's ``scheduler-address``.

    Raises
    ------
    InputError
        No address, nothing answers there, or it runs no PlexRL.
    ServiceError
        The scheduler went away.
    """
    address = address or dask.config.get("scheduler-address", None)
    if not address:
        raise InputError(
            "no scheduler is named; give its address, such as tcp://127.0.0.1:8786, or set "
            "DASK_SCHEDULER_ADDRESS"
        )
    try:
        client = Client(address, timeout=CONNECT_S, set_as_default=False, name="plexrl-look")
    except (OSError, ValueError) as error:
        raise InputError(
            f"no Dask scheduler answers at {address}: {error}; a LocalCluster prints its address "
            "as cluster.client.scheduler.address"
        ) from error
    with client:
        if not client.run_on_scheduler(_runs_plexrl):
            raise InputError(
                f"the scheduler at {address} runs no PlexRL; start it there with plexrl.attach"
            )
        try:
            yield Cluster(client)
        except OSError as error:
            raise ServiceError(f"the scheduler at {address} went away: {error}") from error


def _runs_plexrl(dask_scheduler: Any) -> bool:  # noqa: ANN401 (Dask is untyped)
    return PLUGIN_NAME in dask_scheduler.plugins
