"""Attaches to a cluster somebody else runs, to look at it; never starts PlexRL there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import dask.config
from distributed import Client
from rich.console import Console

from plexrl.cli.waiting import waiting
from plexrl.errors import InputError, ServiceError
from plexrl.runtime.client import Cluster
from plexrl.runtime.plugin import PLUGIN_NAME

CONNECT_S = 10.0
"""Seconds a scheduler may take to answer: one that is there does so at once."""


@contextmanager
def attached(
    address: str | None, console: Console | None = None, timeout_s: float | None = None
) -> Iterator[Cluster]:
    """A cluster by the address of its Dask scheduler.

    Parameters
    ----------
    address
        For example ``tcp://10.0.0.1:8786``; None takes Dask's ``scheduler-address``.
    console
        Standard error, where to say that it takes long; None: nowhere.
    timeout_s
        Seconds the scheduler may take to answer; None: `CONNECT_S`.

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
    wait_s = CONNECT_S if timeout_s is None else timeout_s
    shown: AbstractContextManager[None] = (
        nullcontext() if console is None else waiting(console, f"asking {address}")
    )
    try:
        with shown:
            client = Client(address, timeout=wait_s, set_as_default=False, name="plexrl-look")
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
        except BrokenPipeError:
            # Whoever reads what is printed has gone, not the scheduler.
            raise
        except OSError as error:
            raise ServiceError(f"the scheduler at {address} went away: {error}") from error


def _runs_plexrl(dask_scheduler: Any) -> bool:  # noqa: ANN401 (Dask is untyped)
    return PLUGIN_NAME in dask_scheduler.plugins
