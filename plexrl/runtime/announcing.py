r"""Makes a Dask worker the worker of a group: a preload for clusters that others start.

::

    dask worker SCHEDULER --nthreads 2 --memory-limit 0 \
        --preload plexrl.runtime.announcing --plexrl-group auto

A worker announces its group as a resource, and every cluster that starts all of its workers by
one command (job queues, Kubernetes, dask-cuda) needs the group's name made out of the worker's.
"""

from __future__ import annotations

import click
from distributed import Worker

from plexrl.runtime.accelerators import visible_devices
from plexrl.runtime.gate import PLACES, RESOURCE_PREFIX, group_of

AUTO = "auto"
"""Group of a worker that sees accelerators: named after it. Others stay ordinary workers."""
FIRST = "first"
"""Of the workers started by one command the first, whose name ends in ``-0``, has a group; the
others are ordinary workers, for rewards, tools and drivers."""


def group_name(worker: str, choice: str, *, has_devices: bool) -> str | None:
    """Name of a worker's group; None for an ordinary worker.

    Parameters
    ----------
    worker
        Name of the worker, unique in its cluster.
    choice
        ``auto``, ``first``, or a name.
    has_devices
        Whether the worker sees accelerators.
    """
    if choice == AUTO:
        return f"group-{worker}" if has_devices else None
    if choice == FIRST:
        return f"group-{worker.removesuffix('-0')}" if worker.endswith("-0") else None
    return choice


@click.command()
@click.option("--plexrl-group", default=AUTO, help="auto, first, or the name of the group.")
def dask_setup(worker: Worker, plexrl_group: str) -> None:
    """Announce the worker's group, before the worker registers."""
    if group_of(worker.state.total_resources) is not None:
        return
    name = group_name(str(worker.name), plexrl_group, has_devices=bool(visible_devices()))
    if name is not None:
        resource = {RESOURCE_PREFIX + name: float(PLACES)}
        worker.state.total_resources.update(resource)
        worker.state.available_resources.update(resource)
