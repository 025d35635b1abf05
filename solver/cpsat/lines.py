"""Lines over the pipe between the guard and its child: JSON objects, one a line.

What a line of the child says is read by whoever asked; a line that makes no sense is told from
one that does, and never raises.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from solver.errors import SolverError

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Finished:
    """The child did all it was asked to."""


def write_request_line(values: Mapping[str, object]) -> bytes:
    """A request as one line."""
    return json.dumps(values).encode() + b"\n"


def write_finished() -> str:
    """The child's last line."""
    return json.dumps({"finished": True})


def read_answer_line(line: bytes, read: Callable[[Mapping[str, Any]], _T]) -> _T | Finished | None:
    """What a line of the child says; None if it is no answer.

    Parameters
    ----------
    line
        What the child printed.
    read
        Turns the object of a line into an answer; may raise where it is none.
    """
    try:
        values = json.loads(line)
        if not isinstance(values, Mapping):
            return None
        return Finished() if values.get("finished") is True else read(values)
    except (ValueError, KeyError, TypeError, AttributeError, SolverError):
        return None
