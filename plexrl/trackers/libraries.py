"""Trackers of the libraries people use; each is an extra, and none talks to a network unasked."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dataflow.extras import load_extra
from plexrl.trackers.protocol import numbers_of
from solver.trace import IterationRecord

_EXTRA = "trackers"

LIBRARIES: Mapping[str, str] = {
    "mlflow": "mlflow",
    "tensorboard": "tensorboard",
    "trackio": "trackio",
    "wandb": "wandb",
}
"""Tracker → the library it needs."""


class TensorBoardTracker:
    """Event files in ``FOLDER/JOB``, for ``tensorboard --logdir FOLDER``."""

    def __init__(self, folder: str | Path) -> None:
        load_extra("tensorboard", _EXTRA, "the tracker 'tensorboard'")
        self._library = load_extra("torch.utils.tensorboard", _EXTRA, "the tracker 'tensorboard'")
        self._folder = Path(folder)
        self._writers: dict[str, Any] = {}

    def begin(self, job: str, settings: Mapping[str, object]) -> None:
        """Open the job's event file."""
        writer = self._library.SummaryWriter(str(self._folder / job))
        text = "\n".join(f"- {name}: {value}" for name, value in settings.items())
        writer.add_text("settings", text)
        self._writers[job] = writer

    def log(self, record: IterationRecord) -> None:
        """Write one scalar per metric."""
        for name, value in numbers_of(record).items():
            self._writers[record.job].add_scalar(name, value, record.iteration)

    def end(self, job: str) -> None:
        """Close the job's event file."""
        self._writers.pop(job).close()

    def close(self) -> None:
        """Close all event files."""
        for job in list(self._writers):
            self.end(job)


class WandbTracker:
    """Weights & Biases runs in one folder; offline, ``wandb sync`` sends them later."""

    def __init__(self, folder: str | Path, project: str = "plexrl", mode: str = "offline") -> None:
        self._library = load_extra("wandb", _EXTRA, "the tracker 'wandb'")
        self._folder = Path(folder)
        self._project = project
        self._mode = mode
        self._runs: dict[str, Any] = {}

    def begin(self, job: str, settings: Mapping[str, object]) -> None:
        """Begin a run of the job's name, beside those of other jobs."""
        self._folder.mkdir(parents=True, exist_ok=True)
        self._runs[job] = self._library.init(
            project=self._project,
            name=job,
            config=dict(settings),
            dir=str(self._folder),
            mode=self._mode,
            reinit="create_new",
            # Its summary of a run would be written across the tables of others.
            settings=self._library.Settings(silent=True),
        )

    def log(self, record: IterationRecord) -> None:
        """Log one step."""
        self._runs[record.job].log(numbers_of(record), step=record.iteration)

    def end(self, job: str) -> None:
        """Finish the job's run."""
        self._runs.pop(job).finish()

    def close(self) -> None:
        """Finish all runs."""
        for job in list(self._runs):
            self.end(job)


class MLflowTracker:
    """MLflow runs in a local SQLite file, or on a server."""

    def __init__(self, folder: str | Path, experiment: str = "plexrl", uri: str = "") -> None:
        library = load_extra("mlflow", _EXTRA, "the tracker 'mlflow'")
        Path(folder).mkdir(parents=True, exist_ok=True)
        target = uri or f"sqlite:///{Path(folder).absolute() / 'mlflow.db'}"
        self._client: Any = library.MlflowClient(tracking_uri=target)
        found = self._client.get_experiment_by_name(experiment)
        self._experiment = (
            self._client.create_experiment(experiment) if found is None else found.experiment_id
        )
        self._runs: dict[str, str] = {}

    def begin(self, job: str, settings: Mapping[str, object]) -> None:
        """Begin a run of the job's name."""
        run = self._client.create_run(self._experiment, run_name=job)
        self._runs[job] = run.info.run_id
        for name, value in settings.items():
            self._client.log_param(self._runs[job], name, value)

    def log(self, record: IterationRecord) -> None:
        """Log one value per metric."""
        for name, value in numbers_of(record).items():
            self._client.log_metric(self._runs[record.job], name, value, step=record.iteration)

    def end(self, job: str) -> None:
        """Mark the job's run as finished."""
        self._client.set_terminated(self._runs.pop(job))

    def close(self) -> None:
        """Mark all runs as finished."""
        for job in list(self._runs):
            self.end(job)


class TrackioTracker:
    """Trackio runs, one at a time: the library knows one current run per process.

    Rows of a job are kept until it ends, then written at once.
    """

    def __init__(self, project: str = "plexrl") -> None:
        self._library = load_extra("trackio", _EXTRA, "the tracker 'trackio'")
        self._project = project
        self._settings: dict[str, Mapping[str, object]] = {}
        self._rows: dict[str, list[IterationRecord]] = {}

    def begin(self, job: str, settings: Mapping[str, object]) -> None:
        """Note the job."""
        self._settings[job] = settings
        self._rows[job] = []

    def log(self, record: IterationRecord) -> None:
        """Keep the row."""
        self._rows[record.job].append(record)

    def end(self, job: str) -> None:
        """Write the job's run."""
        self._library.init(
            project=self._project, name=job, config=dict(self._settings.pop(job)), embed=False
        )
        for record in self._rows.pop(job):
            self._library.log(numbers_of(record), step=record.iteration)
        self._library.finish()

    def close(self) -> None:
        """Write all runs."""
        for job in list(self._rows):
            self.end(job)
