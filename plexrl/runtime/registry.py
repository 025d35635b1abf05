"""The registry in the store: which jobs were ever submitted, and which still have work to do.

``plexrl resume`` reads it after everything else is gone. One folder for all jobs, beside the
states::

    <store>/jobs/<name>.spec      the job, by cloudpickle
    <store>/jobs/<name>.end       why it ended: empty if it finished, `CANCELLED`, or an error
    <store>/states/               the Zarr store
"""

from __future__ import annotations

import os
from pathlib import Path

SPEC = ".spec"
END = ".end"
CANCELLED = "cancelled"
"""End of a job that its user cancelled: it is not resumed."""


def states_folder(store: str | Path) -> Path:
    """Where the Zarr store of states lies."""
    return Path(store) / "states"


class JobRegistry:
    """Jobs of one store; every write is one rename."""

    def __init__(self, store: str | Path) -> None:
        self._folder = Path(store) / "jobs"

    def save(self, name: str, spec: bytes) -> None:
        """Note a job that runs."""
        self._write(name + SPEC, spec)
        (self._folder / (name + END)).unlink(missing_ok=True)

    def end(self, name: str, error: str) -> None:
        """Note that a job ended: with an error, or finished where that is empty."""
        self._write(name + END, error.encode())

    def names(self) -> tuple[str, ...]:
        """All jobs, sorted."""
        if not self._folder.is_dir():
            return ()
        return tuple(sorted(p.name.removesuffix(SPEC) for p in self._folder.glob("*" + SPEC)))

    def unfinished(self) -> tuple[str, ...]:
        """Jobs to go on with: interrupted ones and failed ones."""
        return tuple(name for name in self.names() if self.error(name) not in {"", CANCELLED})

    def error(self, name: str) -> str | None:
        """Why a job ended; empty if it finished, None if it has not ended."""
        path = self._folder / (name + END)
        return path.read_text(encoding="utf-8") if path.exists() else None

    def spec(self, name: str) -> bytes:
        """A job's description, by cloudpickle."""
        return (self._folder / (name + SPEC)).read_bytes()

    def _write(self, name: str, data: bytes) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        temporary = self._folder / f".{name}.{os.getpid()}"
        temporary.write_bytes(data)
        temporary.replace(self._folder / name)
