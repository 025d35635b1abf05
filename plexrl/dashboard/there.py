"""What is kept and read on the scheduler itself, so that a look does not carry the log away."""

from __future__ import annotations

from distributed import Scheduler

from plexrl.dashboard.source import Cockpit, Source
from plexrl.dashboard.statusjson import status_json
from plexrl.runtime.plugin import PLUGIN_NAME

EXTENSION = "plexrl-cockpit"
"""Where the cockpit stands among the scheduler's extensions."""


def cockpit_of(scheduler: Scheduler, source: Source) -> Cockpit:
    """The cockpit of a scheduler, made when it is first asked for.

    Parameters
    ----------
    scheduler
        The Dask scheduler.
    source
        Where the numbers come from.
    """
    found = scheduler.extensions.setdefault(EXTENSION, Cockpit(source))
    assert isinstance(found, Cockpit)
    return found


def status_of(dask_scheduler: Scheduler) -> dict[str, object]:
    """The status as JSON types, for ``Client.run_on_scheduler``, where PlexRL runs."""
    view = dask_scheduler.plugins[PLUGIN_NAME].view
    return status_json(cockpit_of(dask_scheduler, view).read())
