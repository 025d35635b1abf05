"""What goes over the pipe between the guard and its child: one JSON object a line.

Request (stdin, once): tasks, each a problem of one group with a valid timeline as hint if there
is one, and the limits. Answers (stdout): `Found` for each better timeline, `Proved` when a stage
of a task ends, `Finished` as the last line.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from solver.cpsat.lines import Finished, read_answer_line, write_finished, write_request_line
from solver.linked import joined
from solver.plan import Plan, Timeline
from solver.problem import Problem
from solver.timeline import plan_of


@dataclass(frozen=True, slots=True)
class Task:
    """The jobs of one group, or of several that repeat one cycle together, to be ordered there."""

    problem: Problem
    """The groups and their jobs."""
    hint: Timeline | None
    """A valid timeline to improve, within the slowdown limits."""


@dataclass(frozen=True, slots=True)
class Request:
    """What the child shall do."""

    tasks: tuple[Task, ...]
    deadline_epoch_s: float
    """When it shall have ended by itself, as seconds since the epoch."""
    seed: int
    num_workers: int
    memory_bytes: int
    """Cap on its address space."""


@dataclass(frozen=True, slots=True)
class Found:
    """A better timeline of a task."""

    task: int
    timeline: Timeline


@dataclass(frozen=True, slots=True)
class Proved:
    """The cycle stage of a task ended."""

    task: int
    ending: str
    """A value of `cyclic.Ending`."""
    bound_ticks: int
    """No cycle is shorter; 0 if nothing is proven."""


Answer = Found | Proved | Finished


def write_request(request: Request) -> bytes:
    """The request as one line."""
    tasks = [
        {
            "problem": task.problem.to_json(),
            "hint": None if task.hint is None else _wrap(task.problem, task.hint),
        }
        for task in request.tasks
    ]
    values = {
        "tasks": tasks,
        "deadline_epoch_s": request.deadline_epoch_s,
        "seed": request.seed,
        "num_workers": request.num_workers,
        "memory_bytes": request.memory_bytes,
    }
    return write_request_line(values)


def read_request(line: bytes) -> Request:
    """The request of a line that `write_request` wrote."""
    values = json.loads(line)
    return Request(
        tasks=tuple(
            Task(
                problem=Problem.from_json(entry["problem"]),
                hint=None if entry["hint"] is None else _unwrap(entry["hint"]),
            )
            for entry in values["tasks"]
        ),
        deadline_epoch_s=values["deadline_epoch_s"],
        seed=values["seed"],
        num_workers=values["num_workers"],
        memory_bytes=values["memory_bytes"],
    )


def write_answer(answer: Answer, problem: Problem | None = None) -> str:
    """The answer as one line; a timeline needs its task's problem."""
    match answer:
        case Found(task, timeline) if problem is not None:
            return json.dumps({"found": task, "plan": _wrap(problem, timeline)})
        case Proved(task, ending, bound_ticks):
            return json.dumps({"proved": task, "ending": ending, "bound_ticks": bound_ticks})
        case _:
            return write_finished()


def read_answer(line: bytes) -> Answer | None:
    """The answer of a line, or None if the line is no answer."""
    return read_answer_line(line, _read)


def _read(values: Mapping[str, Any]) -> Found | Proved:
    if "found" in values:
        return Found(_whole(values["found"]), _unwrap(values["plan"]))
    return Proved(_whole(values["proved"]), str(values["ending"]), _whole(values["bound_ticks"]))


def _whole(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"{value!r} is no whole number")  # noqa: TRY004  (read as malformed)
    return value


def _wrap(problem: Problem, timeline: Timeline) -> dict[str, object]:
    return plan_of(problem, [timeline]).to_json()


def _unwrap(data: object) -> Timeline:
    return joined(Plan.from_json(data).timelines)
