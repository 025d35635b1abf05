"""What lies in a store, whether it is as it was written, and what may go, leave or come in."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import cloudpickle
from rich.table import Table
from rich.text import Text

from plexrl.cli.live import megabytes
from plexrl.clock import system_clock
from plexrl.core.states import Manifest, StateRef
from plexrl.errors import InputError, StoreError
from plexrl.runtime.registry import JobRegistry, states_of
from plexrl.state import files
from plexrl.state.exporting import export_state
from plexrl.state.importing import import_state, open_source
from plexrl.state.opening import open_store
from plexrl.state.places import is_url
from plexrl.state.store import Collected, Finding, Store

KEEP_VERSIONS = 2
"""As running jobs do: the newest, and the one before should the newest be damaged."""


@dataclass(frozen=True, slots=True)
class Cleared:
    """What garbage collection did to one job."""

    job: str
    collected: Collected | None
    """None: it was left alone."""
    reason: str
    """Why it was left alone; empty if it was not."""

    def to_json(self) -> dict[str, object]:
        """The row as JSON types."""
        found = self.collected
        return {
            "job": self.job,
            "versions": [] if found is None else [ref.version for ref in found.versions],
            "quarantined": [] if found is None else list(found.quarantined),
            "nbytes": 0 if found is None else found.nbytes,
            "moved_aside": [] if found is None else list(map(str, found.moved_aside)),
            "left_alone": self.reason,
        }


@contextmanager
def opened(where: str | Path) -> Iterator[Store]:
    """The Zarr store of a folder or at a URL, claimed by nobody and changed by nobody.

    Raises
    ------
    InputError
        No store is there.
    """
    states = states_of(where)
    with files.disk_errors("look into", Path(states)):
        is_store = is_url(where) or Path(states).is_dir()
    if not is_store:
        raise InputError(f"{where} is no PlexRL store: it has no folder 'states'")
    with open_store(states, read_only=True) as store:
        yield store


def listing(where: str | Path) -> list[dict[str, object]]:
    """One row per job and model: versions, bytes of the newest, and how the job stands."""
    registry = JobRegistry(where)
    rows: list[dict[str, object]] = []
    with opened(where) as store:
        names = set(registry.names())
        for job in sorted({*store.jobs(), *names}):
            for model in store.models(job):
                versions = store.versions(job, model)
                # One that is damaged says nothing; `check` tells what is wrong with it.
                newest = store.latest(job, model)
                rows.append(
                    {
                        "job": job,
                        "state": _state(registry.error(job)) if job in names else "no job",
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


def check(where: str | Path) -> tuple[Finding, ...]:
    """Read every version back and compare it with its checksums."""
    with opened(where) as store:
        return store.check()


def collect(where: str | Path, keep: int) -> tuple[Cleared, ...]:
    """Delete what no job needs; a job that another process writes is left alone."""
    with opened(where) as store:
        jobs = store.jobs()
    cleared: list[Cleared] = []
    with open_store(states_of(where), shared=True) as store:
        for job in jobs:
            try:
                cleared.append(Cleared(job, store.collect(job, keep), ""))
            except StoreError as error:
                cleared.append(Cleared(job, None, str(error)))
            finally:
                store.release_job(job)
    return tuple(cleared)


def parse_state(text: str) -> tuple[str, str, int | None]:
    """Job, model and version of ``JOB/MODEL`` or ``JOB/MODEL@VERSION``.

    Raises
    ------
    InputError
        It is neither.
    """
    name, _, version = text.partition("@")
    job, slash, model = name.partition("/")
    if not (job and slash and model) or ("@" in text and not version.isdecimal()):
        raise InputError(f"{text!r} names no state; write JOB/MODEL or JOB/MODEL@VERSION")
    return job, model, int(version) if version else None


def export(where: str | Path, state: str, output: Path, base: Path | None) -> Manifest:
    """Write the weights of a version, by default the newest, as a Hugging Face folder.

    Raises
    ------
    InputError
        There is no such model, or its base model is unknown.
    """
    job, model, version = parse_state(state)
    with opened(where) as store:
        if version is None:
            latest = store.latest(job, model)
            if latest is None:
                raise InputError(f"{where} holds no version of {job}/{model}; try: plexrl store ls")
            version = latest.ref.version
        chosen = base or _base_of(where, job, model)
        return export_state(store, StateRef(job, model, version), chosen, output)


def _base_of(where: str | Path, job: str, model: str) -> Path:
    registry = JobRegistry(where)
    if job not in registry.names():
        raise InputError(f"the base model of {job}/{model} is not known; name it with --base")
    spec = cloudpickle.loads(registry.spec(job))
    return Path(spec.models[model].folder)


def bring_in(where: str | Path, source: Path, state: str) -> Manifest:
    """Commit the tensors of a file or folder as a version, by default version 0."""
    job, model, version = parse_state(state)
    # Looked into first: no store shall be made for what cannot come in.
    incoming = open_source(source)
    with open_store(states_of(where), shared=True) as store:
        return import_state(
            store, StateRef(job, model, version or 0), incoming, now_unix_s=system_clock()
        )


def cleared_table(rows: tuple[Cleared, ...]) -> Table:
    """What garbage collection did, for people."""
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in ("job", "versions", "damaged", "freed", "moved aside", "left alone"):
        table.add_column(name)
    for row in rows:
        found = row.collected or Collected((), (), 0, ())
        table.add_row(
            row.job,
            str(len(found.versions)),
            str(len(found.quarantined)),
            megabytes(found.nbytes),
            ", ".join(map(str, found.moved_aside)) or "–",
            row.reason or "–",
        )
    return table


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
