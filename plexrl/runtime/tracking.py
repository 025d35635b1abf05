"""Tells the trackers of a job what it committed, in a thread that no iteration waits for."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from concurrent.futures import Executor, Future
from dataclasses import fields, is_dataclass
from pathlib import Path

from distributed import Client

from dataflow.jobs import JobSpec
from plexrl.errors import InputError
from plexrl.runtime.asking import ask_workers
from plexrl.runtime.gate import group_of
from plexrl.state.places import is_url
from plexrl.trackers import TrackerSet, check_trackers, missing_library, open_trackers
from solver.trace import IterationRecord

logger = logging.getLogger("plexrl.trackers")

END_WAIT_S = 120.0
"""Seconds trackers may take to write what is left when a job ends; then it ends without them. On a
busy machine loading their libraries alone takes half a minute."""

LOCAL = Path("plexrl-trackers")
"""Where trackers write that know no URLs: in the working directory of the driver's worker."""

_PLAIN = (str, int, float, bool)


class Tracking:
    """The trackers of one job, below ``<store>/trackers``; of a store at a URL below `LOCAL`.

    Parameters
    ----------
    spec
        The job.
    store
        Its store.
    pool
        One thread for all jobs of the process: some libraries know one run at a time.
    """

    def __init__(self, spec: JobSpec, store: str | Path, pool: Executor) -> None:
        self._job = spec.name
        self._pool = pool
        # Loading a library takes seconds, which the driver's loop does not have.
        self._trackers: Future[TrackerSet] = self._pool.submit(
            open_trackers,
            spec.trackers,
            LOCAL if is_url(store) else Path(store) / "trackers",
            {spec.name: comparable_settings(spec)},
        )

    def log(self, record: IterationRecord) -> None:
        """Tell them of a committed iteration, some time soon."""
        self._pool.submit(self._feed, record)

    async def close(self) -> None:
        """Let them finish."""
        end = self._pool.submit(self._end)
        try:
            await asyncio.wait_for(asyncio.wrap_future(end), END_WAIT_S)
        except TimeoutError:
            logger.warning(
                "the trackers of job %s take longer than %g s to finish; it ends without them",
                self._job,
                END_WAIT_S,
            )

    def _feed(self, record: IterationRecord) -> None:
        if self._trackers.exception() is None:
            self._trackers.result().feed([record])

    def _end(self) -> None:
        error = self._trackers.exception()
        if error is None:
            self._trackers.result().close()
        else:
            logger.warning("job %s ran without its trackers: %s", self._job, error)


def comparable_settings(spec: JobSpec) -> dict[str, object]:
    """What a person wants to compare runs of jobs by: plain values only."""
    found: dict[str, object] = {
        "iterations": spec.iterations,
        "seed": spec.seed,
        "num_prompts": spec.num_prompts,
        "staleness": spec.staleness,
        **{f"model.{name}": model.folder for name, model in spec.models.items()},
    }
    settings = getattr(spec.pipeline, "settings", None)
    if is_dataclass(settings):
        values = {f.name: getattr(settings, f.name) for f in fields(settings)}
        found |= {name: value for name, value in values.items() if isinstance(value, _PLAIN)}
    return found


def check_tracking(client: Client, job: JobSpec) -> None:
    """Refuse a job whose trackers do not exist, or cannot be loaded where its driver may live.

    Raises
    ------
    InputError
        The message names the tracker and the remedy.
    """
    check_trackers(job.trackers)
    if not job.trackers:
        return
    workers: Mapping[str, Mapping[str, Mapping[str, float]]] = client.scheduler_info(n_workers=-1)[
        "workers"
    ]
    ordinary = [a for a, worker in workers.items() if group_of(worker["resources"]) is None]
    found = ask_workers(client, missing_library, job.trackers, workers=ordinary)
    for address, name in sorted(found.items()):
        if name:
            raise InputError(
                f"job {job.name!r} has the tracker {name!r}, whose library worker {address} lacks; "
                "install it there with: pip install 'plexrl[trackers]', or leave the tracker out"
            )
