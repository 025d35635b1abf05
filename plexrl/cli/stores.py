"""What lies in a store, and whether it is as it was written."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.table import Table
from rich.text import Text

from plexrl.cli.live import megabytes
from plexrl.core.states import StateRef
from plexrl.errors import InputError
from plexrl.runtime.registry import JobRegistry, states_folder
from plexrl.state.zarr_store import Finding, ZarrStore


@contextmanager
def opened(folder: Path) -> Iterator[ZarrStore]:
    """The Zarr store of a folder, claimed by nobody and changed by nobody.

    Raises
    ------
    InputError
        No store is there.
    """
    states = states_folder(folder)
    if not states.is_dir():
        raise InputError(f"{folder} is no PlexRL store: it has no folder {states.name!r}")
    with ZarrStore(states, read_only=True) as store:
        yield store


def listing(folder: Path) -> list[dict[str, object]]:
    """One row per job and model: versions, bytes of the newest, and how the job stands."""
    registry = JobRegistry(folder)
    rows: list[dict[str, object]] = []
    with opened(folder) as store:
        for job in sorted({*store.jobs(), *registry.names()}):
            for model in store.models(job):
                versions = store.versions(job, model)
                newest = store.manifest(StateRef(job, model, versions[-1])) if versions else None
                rows.append(
                    {
                        "job": job,
                        "state": _state(registry.error(job)),
                        "model": model,
                        "versions": list(versions),
                        "iteration": None if newest is None else newest.iteration,
                        "nbytes": 0 if newest is None else newest.layout.nbytes,
                    }
                )
    return rows


def _state(error: str | None) -> str:
    if error is None:
        return "unfinished"
    return f"failed: {error.strip().splitlines()[0]}" if error.strip() else "finished"


def check(folder: Path) -> tuple[Finding, ...]:
    """Read every version back and compare it with its checksums."""
    with opened(folder) as store:
        return store.check()


def listing_table(rows: list[dict[str, object]]) -> Table:
    """The listing for people."""
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in ("job", "state", "model", "versions", "iteration", "size"):
        table.add_column(name)
    for row in rows:
        versions, nbytes = row["versions"], row["nbytes"]
        assert isinstance(versions, list)
        assert isinstance(nbytes, int)
        table.add_row(
            str(row["job"]),
            str(row["state"]),
            str(row["model"]),
            ", ".join(map(str, versions)) or "–",
            "–" if row["iteration"] is None else str(row["iteration"]),
            megabytes(nbytes),
        )
    return table


def findings_table(findings: tuple[Finding, ...]) -> Table:
    """The findings for people."""
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in ("version", "size", "finding"):
        table.add_column(name)
    for finding in findings:
        told = Text(finding.damage, "red") if finding.damage else Text("as written", "green")
        table.add_row(str(finding.ref), megabytes(finding.nbytes), told)
    return table
