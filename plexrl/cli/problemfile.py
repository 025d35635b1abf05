"""Reads and writes planning problems as people write them: YAML or JSON, seconds and gigabytes."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import yaml
from jsonschema import Draft202012Validator, ValidationError
from jsonschema.exceptions import best_match

import solver
from plexrl.cli.documents import UnreadableError, parse, read_text
from plexrl.cli.fleetfile import Fleet, fleet_of, uses_pools
from plexrl.cli.references import check_apart
from plexrl.errors import InputError
from plexrl.spelling import hint
from solver.dispatch.events import TICKS_PER_S
from solver.problem import HORIZON_TICKS

SCHEMA = Path(__file__).with_name("problem.schema.json")
"""The published schema."""
GB = 10**9
PRICE_UNITS = 100
"""Integer price units per unit of the file: cents of a dollar."""

_Path = tuple[str | int, ...]
_T = TypeVar("_T")
_OF_FLEETS = ("private_pool", "staleness")
_OF_FLEET_JOBS = ("rollout_memory_gb", "copy_s")
_OF_FLEET_OPS = ("cv", "groups")
MAX_GROUPS = 100_000
"""Most groups of a file, counts included."""

EXAMPLE = """\
# Three jobs and two groups. Plan it:  plexrl plan problem.yaml
format: 1
groups:
  - name: node          # node-0 and node-1
    count: 2
    memory_gb: 1536     # host memory for the states of the jobs placed there
    price: 42.24        # per hour, in any unit
    max_jobs: 5
jobs:
  - name: math
    slowdown_limit: 1.5 # an iteration may take 1.5 times as long as alone
    memory_gb: 275
    ops:                # in the order of the loop; after the last comes the first again
      - {name: rollout, duration_s: 180, wait_s: 20, switch_s: 1}
      - {name: train, duration_s: 60, wait_s: 5, switch_s: 4}
  - name: agent
    slowdown_limit: 1.5
    memory_gb: 490
    ops:
      - {name: rollout.0, duration_s: 60, wait_s: 180, switch_s: 2}   # tools run in the wait
      - {name: rollout.1, duration_s: 60, wait_s: 120, switch_s: 2}
      - {name: train, duration_s: 50, switch_s: 6}
  - name: search
    slowdown_limit: 1.5
    memory_gb: 240
    ops:
      - {name: rollout, duration_s: 30, wait_s: 260, switch_s: 1}
      - {name: train, duration_s: 70, switch_s: 4}
"""


def read_problem(path: str | Path) -> solver.Problem | Fleet:
    """Read a problem file, or what `solver.Problem.to_json` wrote; ops may name their pools.

    Raises
    ------
    InputError
        It cannot be read, is no mapping, breaks the schema, or contradicts itself; the message
        names the file, the path inside it, the value found and the remedy.
    """
    path = Path(path)
    data = load(path)
    if not isinstance(data, Mapping):
        raise InputError(f"{path}: the file is {_shown(data)}; give a mapping with groups and jobs")
    for inside, value in _numbers(data):
        if not math.isfinite(value):
            raise InputError(f"{path}: {_dotted(inside)} is {value}; give a finite number")
    if _is_internal(data):
        return _built(path, lambda: solver.Problem.from_json(data))
    worst = best_match(_validator().iter_errors(data))
    if worst is not None:
        raise _explained(path, worst)
    num_groups = sum(entry.get("count", 1) for entry in data["groups"])
    if num_groups > MAX_GROUPS:
        raise InputError(f"{path}: groups are {num_groups} in all; give at most {MAX_GROUPS}")
    if uses_pools(data):
        return _built(path, lambda: fleet_of(data, _all_groups(data)))
    for where in _only_of_fleets(data):
        raise InputError(
            f"{path}: {where} goes with ops that name pools; leave it out, or "
            "give each op the pool that runs it"
        )
    return _built(path, lambda: _problem(data))


def _only_of_fleets(data: Mapping[str, Any]) -> Iterator[str]:
    """Where keys stand that only files with pools of ops have."""
    yield from (key for key in _OF_FLEETS if key in data)
    for index, job in enumerate(data["jobs"]):
        yield from (f"jobs[{index}].{key}" for key in _OF_FLEET_JOBS if key in job)
        for place, op in enumerate(job["ops"]):
            yield from (f"jobs[{index}].ops[{place}].{key}" for key in _OF_FLEET_OPS if key in op)


def _built(path: Path, build: Callable[[], _T]) -> _T:
    """What is built of a file; what contradicts itself there is told with the file's name."""
    try:
        return build()
    except (solver.SolverError, InputError) as error:
        raise InputError(f"{path}: {error}") from error


def read_plan(path: str | Path) -> solver.Plan:
    """Read a plan: what ``plexrl plan --output`` or ``--json`` wrote.

    Raises
    ------
    InputError
        It cannot be read, or is no plan.
    """
    path = Path(path)
    data = load(path)
    if isinstance(data, Mapping) and isinstance(data.get("plan"), Mapping):
        data = data["plan"]
    if isinstance(data, Mapping) and "seats" in data:
        raise InputError(
            f"{path} is a plan where ops name pools, the problem has one group a job; name a plan "
            "that was made for it"
        )
    try:
        return solver.Plan.from_json(data)
    except solver.PlanError as error:
        raise InputError(f"{path}: {error}") from error


def load(path: Path) -> object:
    """Parse a YAML or JSON file.

    Raises
    ------
    InputError
        It cannot be read, is too large, or is neither.
    """
    try:
        return parse(read_text(path))
    except UnreadableError as error:
        raise InputError(f"{path} {error}") from error


def to_file(problem: solver.Problem) -> str:
    """The problem as a file that `read_problem` reads back equal."""
    groups = [
        {
            "name": group.id,
            "pool": group.pool,
            "memory_gb": group.memory_bytes / GB,
            "price": group.price / PRICE_UNITS,
            **({} if group.max_jobs is None else {"max_jobs": group.max_jobs}),
        }
        for group in problem.groups
    ]
    jobs = [_job_entry(job) for job in problem.jobs]
    data: dict[str, object] = {"format": 1, "groups": groups, "jobs": jobs}
    if problem.current:
        data["current"] = dict(problem.current)
    if problem.horizon_ticks != HORIZON_TICKS:
        data["horizon_s"] = problem.horizon_ticks / TICKS_PER_S
    return yaml.safe_dump(data, sort_keys=False)


def _job_entry(job: solver.Job) -> dict[str, object]:
    ops = [
        {
            "name": op.name,
            "duration_s": op.duration_ticks / TICKS_PER_S,
            "wait_s": op.wait_ticks / TICKS_PER_S,
            "switch_s": op.switch_ticks / TICKS_PER_S,
            **({} if op.group is None else {"group": op.group}),
            **({"also": list(op.also)} if op.also else {}),
        }
        for op in job.ops
    ]
    optional = {
        "pool": job.pool,
        "group": job.pinned_group,
        "apart_from": list(job.forbids),
        "ahead_ops": job.ahead_ops,
        "staleness": job.staleness,
        "move_s": job.move_ticks / TICKS_PER_S,
    }
    return {
        "name": job.id,
        "slowdown_limit": job.slowdown_limit_permille / 1000,
        "memory_gb": job.memory_bytes / GB,
        "weight": job.weight,
        **{key: value for key, value in optional.items() if value},
        "ops": ops,
    }


def _is_internal(data: Mapping[str, Any]) -> bool:
    jobs = data.get("jobs")
    return (
        "current" in data
        and isinstance(jobs, list)
        and all(isinstance(job, Mapping) and "id" in job for job in jobs)
    )


def _problem(data: Mapping[str, Any]) -> solver.Problem:
    groups = _all_groups(data)
    _check_references(data["jobs"], groups)
    return solver.Problem(
        groups=groups,
        jobs=tuple(_job(entry) for entry in data["jobs"]),
        current=data.get("current"),
        horizon_ticks=round(data.get("horizon_s", HORIZON_TICKS / TICKS_PER_S) * TICKS_PER_S),
    )


def _check_references(jobs: Sequence[Mapping[str, Any]], groups: Sequence[solver.Group]) -> None:
    """Refuse names of nothing in the words of the file: the problem has others for some keys."""
    names = {group.id for group in groups}
    pools = {group.pool for group in groups}
    is_linked = any({"group", "also"} & op.keys() for job in jobs for op in job["ops"])
    for index, job in enumerate(jobs):
        if is_linked and "group" not in job:
            raise InputError(
                f"jobs[{index}].group is missing, while ops name groups of their own; jobs over "
                "several groups are ordered where they are: give the group of every job"
            )
        for place, op in enumerate(job["ops"]):
            for key, group in _named_groups(op):
                if group not in names:
                    raise InputError(
                        f"jobs[{index}].ops[{place}].{key} is {group!r}, which is no group; "
                        f"{hint(group, names)}"
                    )
        for key, known, what in (("group", names, "group"), ("pool", pools, "pool of a group")):
            if key in job and job[key] not in known:
                raise InputError(
                    f"jobs[{index}].{key} is {job[key]!r}, which is no {what}; "
                    f"{hint(job[key], known)}"
                )
    check_apart(jobs)


def _named_groups(op: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Where an op names groups, and which."""
    if "group" in op:
        yield "group", op["group"]
    for at, group in enumerate(op.get("also", ())):
        yield f"also[{at}]", group


def _all_groups(data: Mapping[str, Any]) -> tuple[solver.Group, ...]:
    return tuple(group for entry in data["groups"] for group in _groups(entry))


def _groups(entry: Mapping[str, Any]) -> Iterator[solver.Group]:
    names = [entry["name"]]
    if "count" in entry:
        names = [f"{entry['name']}-{index}" for index in range(entry["count"])]
    for name in names:
        yield solver.Group(
            id=name,
            memory_bytes=max(round(entry["memory_gb"] * GB), 1),
            pool=entry.get("pool", "default"),
            max_jobs=entry.get("max_jobs"),
            price=max(round(entry.get("price", 1) * PRICE_UNITS), 1),
        )


def _job(entry: Mapping[str, Any]) -> solver.Job:
    return solver.Job(
        id=entry["name"],
        ops=tuple(
            solver.Op(
                name=op["name"],
                duration_ticks=round(op["duration_s"] * TICKS_PER_S),
                wait_ticks=round(op.get("wait_s", 0) * TICKS_PER_S),
                switch_ticks=round(op.get("switch_s", 0) * TICKS_PER_S),
                group=op.get("group"),
                also=tuple(op.get("also", ())),
            )
            for op in entry["ops"]
        ),
        memory_bytes=round(entry.get("memory_gb", 0) * GB),
        slowdown_limit_permille=round(entry.get("slowdown_limit", 2) * 1000),
        weight=entry.get("weight", 1),
        pool=entry.get("pool"),
        pinned_group=entry.get("group"),
        forbids=tuple(entry.get("apart_from", ())),
        move_ticks=round(entry.get("move_s", 0) * TICKS_PER_S),
        ahead_ops=entry.get("ahead_ops", 0),
        staleness=entry.get("staleness", 0),
    )


@cache
def _validator() -> Draft202012Validator:
    return Draft202012Validator(json.loads(SCHEMA.read_text(encoding="utf-8")))


def _numbers(data: object) -> Iterator[tuple[_Path, float]]:
    """Every number with a fraction, and where it stands; aliases of YAML are met once."""
    seen: set[int] = set()
    pending: list[tuple[_Path, object]] = [((), data)]
    while pending:
        inside, value = pending.pop()
        if isinstance(value, float):
            yield inside, value
        elif isinstance(value, Mapping | list) and id(value) not in seen:
            seen.add(id(value))
            items = value.items() if isinstance(value, Mapping) else enumerate(value)
            pending.extend(((*inside, key), entry) for key, entry in items)


def _explained(path: Path, error: ValidationError) -> InputError:
    inside = list(error.absolute_path)
    schema = error.schema if isinstance(error.schema, Mapping) else {}
    known = schema.get("properties", {})
    if error.validator == "additionalProperties" and isinstance(error.instance, Mapping):
        unknown = next(key for key in error.instance if key not in known)
        where = _dotted([*inside, unknown])
        return InputError(f"{path}: {where} is no known key; {hint(str(unknown), known)}")
    if error.validator == "required" and isinstance(error.instance, Mapping):
        missing = next(key for key in schema["required"] if key not in error.instance)
        remedy = known[missing]["description"]
        return InputError(f"{path}: {_dotted([*inside, missing])} is missing; give {remedy}")
    remedy = schema.get("description", error.message)
    where = _dotted(inside) if inside else "the file"
    return InputError(f"{path}: {where} is {_shown(error.instance)}; give {remedy}")


def _dotted(parts: Iterable[str | int]) -> str:
    text = ""
    for part in parts:
        text += f"[{part}]" if isinstance(part, int) else f".{part}"
    return text.removeprefix(".")


def _shown(value: object) -> str:
    text = json.dumps(value, default=str, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:57]}..."
