"""What goes over the pipe when a whole problem is packed: one JSON object a line.

Request (stdin, once): the problem, the objective, a valid plan to start from if there is one, and
the limits. Answers (stdout): better plans, better bounds, a finished search, and ``finished`` last.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from solver.bounds import BoundClass
from solver.certificate import Certificate
from solver.cpsat.lines import Finished, read_answer_line, write_finished, write_request_line
from solver.objective import Objective
from solver.plan import Plan
from solver.problem import Problem


@dataclass(frozen=True, slots=True)
class Packed:
    """A better plan."""

    plan: Plan


@dataclass(frozen=True, slots=True)
class Certified:
    """A better bound, with what it rests on."""

    bound_class: BoundClass
    certificate: Certificate


@dataclass(frozen=True, slots=True)
class Searched:
    """CP-SAT chose among all sets there are."""

    value: int
    """No plan has a smaller value, in the unit of the objective."""


PackAnswer = Packed | Certified | Searched | Finished


@dataclass(frozen=True, slots=True)
class PackRequest:
    """What the child shall pack."""

    problem: Problem
    objective: Objective
    start: Plan | None
    """A valid plan to improve."""
    deadline_epoch_s: float
    """When it shall have ended by itself, as seconds since the epoch."""
    seed: int
    memory_bytes: int
    """Cap on its address space."""
    most_passes: int = 1
    """Most passes of a job in the cycle of its group."""


def write_pack_request(request: PackRequest) -> bytes:
    """The request as one line."""
    values = {
        "pack": request.problem.to_json(),
        "objective": str(request.objective),
        "start": None if request.start is None else request.start.to_json(),
        "deadline_epoch_s": request.deadline_epoch_s,
        "seed": request.seed,
        "memory_bytes": request.memory_bytes,
        "most_passes": request.most_passes,
    }
    return write_request_line(values)


def read_pack_request(line: bytes) -> PackRequest | None:
    """The request of a line that `write_pack_request` wrote; None if it is of another kind."""
    values = json.loads(line)
    if "pack" not in values:
        return None
    return PackRequest(
        problem=Problem.from_json(values["pack"]),
        objective=Objective(values["objective"]),
        start=None if values["start"] is None else Plan.from_json(values["start"]),
        deadline_epoch_s=values["deadline_epoch_s"],
        seed=values["seed"],
        memory_bytes=values["memory_bytes"],
        most_passes=values["most_passes"],
    )


def write_pack_answer(answer: PackAnswer) -> str:
    """The answer as one line."""
    match answer:
        case Packed(plan):
            return json.dumps({"packed": plan.to_json()})
        case Certified(bound_class, certificate):
            return json.dumps({"class": str(bound_class), "certificate": certificate.to_json()})
        case Searched(value):
            return json.dumps({"searched": value})
        case Finished():
            return write_finished()


def read_pack_answer(line: bytes) -> PackAnswer | None:
    """The answer of a line, or None if the line is no answer."""
    return read_answer_line(line, _read)


def _read(values: Mapping[str, Any]) -> Packed | Certified | Searched:
    if "packed" in values:
        return Packed(Plan.from_json(values["packed"]))
    if "searched" in values:
        return Searched(int(values["searched"]))
    return Certified(BoundClass(values["class"]), Certificate.from_json(values["certificate"]))
