"""The samples of iterations in the store, for people to look at.

One JSON Lines file per model and iteration, each line a row of `dataflow.samples.table`::

    <store>/samples/<job>/<model>/000012.jsonl
    <store>/samples/<job>/evaluation/000019.jsonl    of held-out prompts, after iteration 19
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path, PurePosixPath

from distributed import get_worker

from dataflow import batches
from dataflow.samples import Sample
from plexrl.errors import InputError, StoreError
from plexrl.runtime.registry import check_there
from plexrl.state.documents import open_documents
from plexrl.state.places import below

ACTOR = "actor"
"""Whose samples are meant where nobody says."""

EVALUATION = "evaluation"
"""Name that the samples of evaluations stand under; no model may have it."""

Row = dict[str, object]

logger = logging.getLogger("plexrl.samples")


class SampleLog:
    """Samples of the jobs of one store, a folder or a URL; every write is one step.

    It travels with the nodes that write, so it opens the store anew each time.
    """

    def __init__(self, store: str | Path) -> None:
        self._store = store
        self._where = below(store, "samples")

    def write(self, job: str, source: str, iteration: int, rows: Iterable[Row]) -> None:
        """Keep the rows of an iteration; those of an earlier attempt are replaced."""
        check_there(self._store)
        lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        open_documents(self._where).put(_name(job, source, iteration), lines.encode())

    def read(self, job: str, iteration: int | None = None, source: str = ACTOR) -> list[Row]:
        """Rows of an iteration, by default of the newest one there is.

        Raises
        ------
        InputError
            There are none.
        """
        known = self.iterations(job, source)
        if not known:
            raise InputError(
                f"no samples of {source!r} of job {job!r} are kept; jobs keep those of every "
                "keep_samples-th iteration, once it has committed"
            )
        chosen = known[-1] if iteration is None else iteration
        if chosen not in known:
            raise InputError(
                f"no samples of iteration {chosen} of job {job!r} ({source}) are kept; there are "
                f"those of {len(known)} iterations from {known[0]} to {known[-1]}"
            )
        content = open_documents(self._where).get(_name(job, source, chosen)) or b""
        # Not splitlines: completions may hold other line separators, which JSON leaves alone.
        return [json.loads(line) for line in content.decode().split("\n") if line]

    def iterations(self, job: str, source: str = ACTOR) -> tuple[int, ...]:
        """Iterations whose samples are kept, in order."""
        names = open_documents(self._where).names(f"{job}/{source}/")
        return tuple(sorted(int(PurePosixPath(name).stem) for name in names))

    def forget(self, job: str) -> None:
        """Delete all samples of a job: another one begins under its name."""
        documents = open_documents(self._where)
        for name in documents.names(f"{job}/"):
            documents.delete(name)


def _name(job: str, source: str, iteration: int) -> str:
    return f"{job}/{source}/{iteration:06d}.jsonl"


def keep(
    log: SampleLog,
    job: str,
    model: str,
    iteration: int,
    samples: Sequence[Sample],
    advantages: object,
    rewards: object,
    trained: object,
) -> None:
    """Body of the node that keeps what a train function saw, once it is done: it must not wait."""
    del trained
    write_or_warn(log, job, model, iteration, batches.rows(samples, advantages, rewards))


def write_or_warn(log: SampleLog, job: str, source: str, iteration: int, rows: list[Row]) -> None:
    """Write samples; where that fails the job goes on, since looking is worth less than the run."""
    try:
        log.write(job, source, iteration, rows)
    except StoreError as error:
        logger.warning("samples of iteration %d of job %s are not kept: %s", iteration, job, error)


def read_here(job: str, iteration: int | None, source: str) -> Sequence[Mapping[str, object]]:
    """Samples from the store of the worker this runs on."""
    log: SampleLog = get_worker().plugins["plexrl"].samples
    return log.read(job, iteration, source)
