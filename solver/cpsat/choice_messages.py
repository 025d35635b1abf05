"""What goes over the pipe when columns are chosen: one JSON object a line.

Request (stdin, once): the columns, a choice to start from, and the limits. Answers (stdout): each
better choice, and ``finished`` last.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from solver.cpsat.lines import Finished, read_answer_line, write_finished, write_request_line
from solver.placement.columns import Column


@dataclass(frozen=True, slots=True)
class Chosen:
    """A better choice."""

    columns: tuple[int, ...]
    """Indices of the columns taken."""


@dataclass(frozen=True, slots=True)
class ChoiceRequest:
    """Which columns to choose among."""

    num_jobs: int
    counts: tuple[int, ...]
    """Per kind how many groups there are."""
    columns: tuple[Column, ...]
    start: tuple[int, ...]
    """Indices of a choice to start from."""
    deadline_epoch_s: float
    """When the child shall have ended by itself, as seconds since the epoch."""
    deterministic_s: float
    """CP-SAT's own seconds, the same on every machine."""
    seed: int
    memory_bytes: int
    """Cap on the child's address space."""


def write_choice_request(request: ChoiceRequest) -> bytes:
    """The request as one line."""
    values = {
        "choose": [[column.kind, column.jobs, column.cost] for column in request.columns],
        "num_jobs": request.num_jobs,
        "counts": request.counts,
        "start": request.start,
        "deadline_epoch_s": request.deadline_epoch_s,
        "deterministic_s": request.deterministic_s,
        "seed": request.seed,
        "memory_bytes": request.memory_bytes,
    }
    return write_request_line(values)


def read_choice_request(line: bytes) -> ChoiceRequest | None:
    """The request of a line that `write_choice_request` wrote; None if it is of another kind."""
    values = json.loads(line)
    if "choose" not in values:
        return None
    return ChoiceRequest(
        num_jobs=values["num_jobs"],
        counts=tuple(values["counts"]),
        columns=tuple(Column(kind, tuple(jobs), cost) for kind, jobs, cost in values["choose"]),
        start=tuple(values["start"]),
        deadline_epoch_s=values["deadline_epoch_s"],
        deterministic_s=values["deterministic_s"],
        seed=values["seed"],
        memory_bytes=values["memory_bytes"],
    )


def write_choice_answer(answer: Chosen | Finished) -> str:
    """The answer as one line."""
    match answer:
        case Chosen(columns):
            return json.dumps({"chosen": columns})
        case Finished():
            return write_finished()


def read_choice_answer(line: bytes) -> Chosen | Finished | None:
    """The answer of a line, or None if the line is no answer."""
    return read_answer_line(line, _read)


def _read(values: Mapping[str, Any]) -> Chosen:
    return Chosen(tuple(int(index) for index in values["chosen"]))
