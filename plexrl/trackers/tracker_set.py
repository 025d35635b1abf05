"""Several trackers as one, fed from the execution log; a tracker that fails stops no job."""

from __future__ import annotations

import importlib.util
import inspect
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Self

from dataflow.errors import MissingExtraError
from dataflow.jobs import TrackerSpec
from plexrl.errors import InputError
from plexrl.spelling import hint
from plexrl.trackers.json_lines import JsonLinesTracker
from plexrl.trackers.libraries import (
    LIBRARIES,
    MLflowTracker,
    TensorBoardTracker,
    TrackioTracker,
    WandbTracker,
)
from plexrl.trackers.protocol import Tracker
from solver.trace import IterationRecord

_logger = logging.getLogger(__name__)

_FACTORIES: Mapping[str, Callable[..., Tracker]] = {
    "json": JsonLinesTracker,
    "mlflow": MLflowTracker,
    "tensorboard": TensorBoardTracker,
    "trackio": TrackioTracker,
    "wandb": WandbTracker,
}
"""Name → what makes it; its parameters are the tracker's options."""

_FOLDER = "folder"
"""Option of the trackers that write files: where, if not below the folder of all."""


class TrackerSet:
    """Hands each committed iteration to all trackers, once and in order.

    Parameters
    ----------
    trackers
        Who is told. One that raises is left out from then on, with a warning in the log: metrics
        are worth less than the run.
    settings
        Job → what a person wants to compare runs by.

    Attributes
    ----------
    failed : dict
        Name of a tracker that was left out → why.
    """

    def __init__(
        self,
        trackers: Sequence[Tracker],
        settings: Mapping[str, Mapping[str, object]] | None = None,
    ) -> None:
        self._trackers = list(trackers)
        self._settings = dict(settings or {})
        self._next: dict[str, int] = {}
        self._open: set[str] = set()
        self.failed: dict[str, str] = {}

    def feed(self, records: Iterable[IterationRecord]) -> int:
        """Tell the trackers what is new among records, e.g. ``cluster.trace().iterations``.

        Parameters
        ----------
        records
            Any part of the log, in any order; iterations that were handed on are passed over,
            so that the whole log may be given again and again.

        Returns
        -------
        int
            How many iterations were new.
        """
        num_new = 0
        for record in sorted(records, key=lambda r: (r.ended_s, r.job, r.iteration)):
            if record.iteration < self._next.get(record.job, 0):
                continue
            if record.job not in self._open:
                self._open.add(record.job)
                settings = self._settings.get(record.job, {})
                self._tell("begin", record.job, settings)
            self._tell("log", record)
            self._next[record.job] = record.iteration + 1
            num_new += 1
        return num_new

    def end(self, job: str) -> None:
        """A job ended; one that never committed an iteration was never begun either."""
        if job in self._open:
            self._open.discard(job)
            self._tell("end", job)

    def close(self) -> None:
        """End all jobs and close the trackers."""
        for job in sorted(self._open):
            self.end(job)
        self._tell("close")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def open(self, name: str, make: Callable[[], Tracker]) -> None:
        """Tell one more tracker, if it can be made: a server that is down costs nobody else."""
        try:
            self._trackers.append(make())
        except MissingExtraError:
            raise
        except Exception as error:  # noqa: BLE001 (libraries raise anything)
            self._leave_out(name, error)

    def _leave_out(self, name: str, error: Exception) -> None:
        self.failed[name] = f"{type(error).__name__}: {error}"
        _logger.warning("tracker %s is left out from now on: %s", name, self.failed[name])

    def _tell(self, method: str, *arguments: object) -> None:
        """Call a method of every tracker that works."""
        for tracker in list(self._trackers):
            try:
                getattr(tracker, method)(*arguments)
            except Exception as error:  # noqa: BLE001 (libraries raise anything)
                self._trackers.remove(tracker)
                self._leave_out(type(tracker).__name__, error)


def check_trackers(wanted: Iterable[TrackerSpec]) -> None:
    """Check names and options of trackers; their libraries are loaded later.

    Raises
    ------
    InputError
        A tracker, or an option of one, does not exist.
    """
    for spec in wanted:
        if spec.name not in _FACTORIES:
            raise InputError(
                f"no tracker is called {spec.name!r}; {hint(spec.name, sorted(_FACTORIES))}"
            )
        known = _options_of(spec.name)
        for option in spec.options:
            if option not in known:
                raise InputError(
                    f"tracker {spec.name!r} has no option {option!r}; {hint(option, known)}"
                )


def missing_library(wanted: Iterable[TrackerSpec]) -> str:
    """The first tracker among these whose library is not installed here; empty if there is none."""
    for spec in wanted:
        if spec.name in LIBRARIES and importlib.util.find_spec(LIBRARIES[spec.name]) is None:
            return spec.name
    return ""


def open_trackers(
    wanted: Sequence[TrackerSpec],
    folder: str | Path,
    settings: Mapping[str, Mapping[str, object]] | None = None,
) -> TrackerSet:
    """Trackers by name, below one folder; JSON Lines always.

    Parameters
    ----------
    wanted
        Of ``json``, ``mlflow``, ``tensorboard``, ``trackio``, ``wandb``, each with its options.
    folder
        Each tracker writes to a folder of its name in it, unless it has an option ``folder``;
        trackio to its own place.
    settings
        See `TrackerSet`.

    Raises
    ------
    InputError
        A tracker, or an option of one, does not exist.
    dataflow.errors.MissingExtraError
        The library of a tracker is not installed.
    """
    check_trackers(wanted)
    chosen = {spec.name: spec for spec in (TrackerSpec("json"), *wanted)}
    trackers = TrackerSet([], settings)
    for spec in chosen.values():
        trackers.open(spec.name, partial(_open, spec, Path(folder)))
    return trackers


def _open(spec: TrackerSpec, folder: Path) -> Tracker:
    options = dict(spec.options)
    if _FOLDER in _options_of(spec.name):
        options.setdefault(_FOLDER, folder / spec.name)
    return _FACTORIES[spec.name](**options)


def _options_of(name: str) -> tuple[str, ...]:
    return tuple(inspect.signature(_FACTORIES[name]).parameters)
