"""Reads job files: YAML, checked against the published schema before anything is built."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator, ValidationError
from jsonschema.exceptions import best_match
from jsonschema.validators import extend

from dataflow.elsewhere import NAMES_ELSEWHERE
from plexrl.cli.documents import UnreadableError, parse, read_text
from plexrl.errors import JobFileError
from plexrl.spelling import hint

SCHEMA = Path(__file__).with_name("job.schema.json")
"""The published schema."""


@dataclass(frozen=True, slots=True)
class JobFile:
    """A job file that follows the schema; names in it are not looked up yet."""

    path: Path
    data: Mapping[str, Any]

    @property
    def name(self) -> str:
        """Name of the job."""
        return str(self.data.get("name", self.path.stem))

    def error(self, inside: str, value: object, remedy: str) -> JobFileError:
        """The error for a value of this file."""
        return _error(self.path, inside, value, remedy)


def read_job_file(path: str | Path) -> JobFile:
    """Read one job file.

    Raises
    ------
    JobFileError
        It cannot be read, is no YAML mapping, or breaks the schema; the message names the file,
        the path inside it, the value found and the remedy.
    """
    path = Path(path)
    data = _load(path)
    if data is None:
        raise JobFileError(
            f"{path}: the file is empty; give a mapping of keys to values, such as 'iterations: 40'"
        )
    if not isinstance(data, Mapping):
        raise _error(path, "", data, "give a mapping of keys to values, such as 'iterations: 40'")
    worst = best_match(_validator().iter_errors(data))
    if worst is not None:
        raise _explained(path, worst)
    file = JobFile(path, data)
    _check_combination(file)
    return file


def _is_whole(_checker: object, value: object) -> bool:
    """Whether a value is a whole number as Python counts: JSON Schema also takes 4.0 for one."""
    return isinstance(value, int) and not isinstance(value, bool)


_StrictValidator = extend(  # type: ignore[no-untyped-call]
    Draft202012Validator,
    type_checker=Draft202012Validator.TYPE_CHECKER.redefine("integer", _is_whole),
)


_OF_THE_ALGORITHM = ("algorithm", "num_samples", "max_new_tokens")


def _check_combination(file: JobFile) -> None:
    """What the schema cannot say in words a person understands."""
    data = file.data
    if "pipeline" not in data:
        if "task" not in data:
            raise file.error("task", None, "name a task, or give a pipeline of your own")
        for key in ("prompts", "frozen_models"):
            if key in data:
                raise file.error(key, data[key], "leave it out, or give a pipeline of your own")
        return
    for key in _OF_THE_ALGORITHM:
        if key in data:
            remedy = "leave it out: a pipeline of your own says this in its code"
            raise file.error(key, data[key], remedy)
    if "evaluation" in data and "task" not in data:
        remedy = "name a task too: it says how completions are judged"
        raise file.error("evaluation", data["evaluation"], remedy)
    if "prompts" in data and "task" in data:
        raise file.error("prompts", data["prompts"], "leave it out, or leave out the task")


@cache
def _validator() -> Draft202012Validator:
    schema = json.loads(SCHEMA.read_text(encoding="utf-8"))
    return _StrictValidator(schema)  # type: ignore[no-any-return]


def _load(path: Path) -> object:
    try:
        return parse(read_text(path))
    except UnreadableError as error:
        raise JobFileError(f"job file {path} {error}") from error


def _error(path: Path, inside: str, value: object, remedy: str) -> JobFileError:
    subject = f"{path}: {inside}" if inside else f"{path}: the file"
    found = "is missing" if value is None else f"is {_shown(value)}"
    return JobFileError(f"{subject} {found}; {remedy}")


def _shown(value: object) -> str:
    text = json.dumps(value, default=str, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _explained(path: Path, error: ValidationError) -> JobFileError:
    inside = _dotted(error.absolute_path)
    schema = error.schema if isinstance(error.schema, Mapping) else {}
    if error.validator == "additionalProperties" and isinstance(error.instance, Mapping):
        known = schema.get("properties", {})
        unknown = next(key for key in error.instance if key not in known)
        where = _dotted([*error.absolute_path, str(unknown)])
        remedy = hint(unknown, known)
        if unknown in NAMES_ELSEWHERE:
            remedy = f"what TRL or verl calls so is {NAMES_ELSEWHERE[unknown]!r} here"
        return JobFileError(f"{path}: {where} is no known key; {remedy}")
    if error.validator == "required" and isinstance(error.instance, Mapping):
        wanted = schema.get("properties", {})
        missing = next(key for key in schema["required"] if key not in error.instance)
        where = _dotted([*error.absolute_path, missing])
        return _error(path, where, None, f"give {wanted[missing]['description']}")
    remedy = schema.get("description", error.message)
    # A value of null is found, not missing.
    shown = "null" if error.instance is None else _shown(error.instance)
    return JobFileError(f"{path}: {inside or 'the file'} is {shown}; give {remedy}")


def _dotted(parts: Iterable[str | int]) -> str:
    return ".".join(str(part) for part in parts)
