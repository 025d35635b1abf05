"""What is to be planned: groups, jobs and their cyclic loops, in integers only.

Everything is checked when it is built, so no later code meets a NaN, an unknown group or
an empty loop. Times are ticks of 1 ms, memory is bytes, ratios are permille.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import TypeVar

from solver.errors import ProblemError

FORMAT = 1
"""Version of the JSON form; another one is refused, not guessed at."""

MAX_TICKS = 30 * 24 * 3600 * 1000
"""Longest duration, wait or switch: 30 days. Longer ones are unit mistakes (µs or ns for ms)."""
MAX_BYTES = 2**60
"""Largest memory: 1 EiB."""
MAX_OPS = 1_000
"""Most ops of one job."""
MAX_ENTRIES = 100_000
"""Most groups, and most jobs, of one problem."""
MAX_LIMIT_PERMILLE = 1_000_000
"""Largest slowdown limit: thousandfold."""
MAX_STALENESS = 8
"""Most passes by which ops may run ahead."""
HORIZON_TICKS = 3_600_000
"""How long a plan is expected to be in force: an hour."""

_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""Characters that break lines, steer terminals, turn text round or are halves: no name has one."""
_FIELDS = ("format", "groups", "jobs", "current", "horizon_ticks")
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Group:
    """A set of accelerators that is time-sliced as one."""

    id: str
    """Unique among groups."""
    memory_bytes: int
    """Memory for the states of the jobs placed here."""
    pool: str = "default"
    """Kind of group; a job may ask for one."""
    max_jobs: int | None = None
    """Most jobs placed here at once; None: no limit."""
    price: int = 1
    """Cost of one tick of the group, in any unit; only ratios count."""

    def __post_init__(self) -> None:
        owner = f"group {self.id!r}"
        _check_text(self.id, "id", "a group")
        _check_text(self.pool, "pool", owner)
        _check_int(self.memory_bytes, "memory_bytes", owner, 1, MAX_BYTES, "bytes")
        if self.max_jobs is not None:
            _check_int(self.max_jobs, "max_jobs", owner, 1, MAX_ENTRIES, "jobs")
        _check_int(self.price, "price", owner, 1, 10**6, "price units")


@dataclass(frozen=True, slots=True)
class Op:
    """One step of a job's loop: it holds the group, then the job waits without it."""

    name: str
    """Unique within the job, e.g. ``actor.rollout.0``."""
    duration_ticks: int
    """Ticks it holds the group, at least 1."""
    wait_ticks: int = 0
    """Ticks without a group between its end and the job's next op (tools, rewards)."""
    switch_ticks: int = 0
    """Ticks the group is occupied before it starts when the group served another job last."""
    group: str | None = None
    """Group it runs on; None: the one its job is placed on."""
    also: tuple[str, ...] = ()
    """Groups that it holds besides, all of them at once."""

    def __post_init__(self) -> None:
        owner = f"op {self.name!r}"
        if self.group is not None:
            _check_text(self.group, "group", owner)
        also = _check_sequence(self.also, str, "also", owner, MAX_ENTRIES)
        object.__setattr__(self, "also", also)
        _check_unique(also, "also", owner)
        _check_text(self.name, "name", "an op")
        _check_int(self.duration_ticks, "duration_ticks", owner, 1, MAX_TICKS, "ticks (1 ms)")
        _check_int(self.wait_ticks, "wait_ticks", owner, 0, MAX_TICKS, "ticks (1 ms)")
        _check_int(self.switch_ticks, "switch_ticks", owner, 0, MAX_TICKS, "ticks (1 ms)")


@dataclass(frozen=True, slots=True)
class Job:
    """A cyclic loop of ops: op, wait, next op, wait … and back to the first."""

    id: str
    """Unique among jobs."""
    ops: tuple[Op, ...]
    """The loop, in order; one pass is one iteration."""
    memory_bytes: int
    """Memory its states take on its group, whoever holds the lease."""
    slowdown_limit_permille: int = 2000
    """Largest iteration time shared ÷ alone, in permille (2000: twice as long)."""
    weight: int = 1
    """Importance beside other jobs; only ratios count."""
    pool: str | None = None
    """Pool it must be placed in; None: any."""
    pinned_group: str | None = None
    """Group it must be placed on; None: any."""
    forbids: tuple[str, ...] = ()
    """Jobs that must not share its group; holds both ways."""
    move_ticks: int = 0
    """Ticks that a group it is moved to serves nobody, to bring its state in (a cold switch)."""
    ahead_ops: int = 0
    """Ops at the start of its loop that may run before the pass before has ended."""
    staleness: int = 0
    """Passes by which those ops may run ahead."""
    busy_ticks: int = field(init=False, compare=False)
    """Ticks of an iteration that hold the group."""
    alone_ticks: int = field(init=False, compare=False)
    """Length of an iteration when the job has its groups for itself: no switches."""
    limit_ticks: int = field(init=False, compare=False)
    """Longest iteration within the slowdown limit."""

    def __post_init__(self) -> None:
        _check_text(self.id, "id", "a job")
        owner = f"job {self.id!r}"
        object.__setattr__(self, "ops", _check_sequence(self.ops, Op, "ops", owner, MAX_OPS))
        if not self.ops:
            raise ProblemError(f"ops of {owner} is empty; give its loop at least one op")
        _check_unique((op.name for op in self.ops), "ops", owner)
        _check_int(self.memory_bytes, "memory_bytes", owner, 0, MAX_BYTES, "bytes")
        _check_int(
            self.slowdown_limit_permille,
            "slowdown_limit_permille",
            owner,
            1000,
            MAX_LIMIT_PERMILLE,
            "permille (1000: as fast as alone)",
        )
        _check_int(self.weight, "weight", owner, 1, 10**6, "weight units")
        _check_int(self.move_ticks, "move_ticks", owner, 0, MAX_TICKS, "ticks (1 ms)")
        for name in ("pool", "pinned_group"):
            if getattr(self, name) is not None:
                _check_text(getattr(self, name), name, owner)
        forbids = _check_sequence(self.forbids, str, "forbids", owner, MAX_ENTRIES)
        object.__setattr__(self, "forbids", forbids)
        _check_unique(forbids, "forbids", owner)
        self._check_ahead(owner)
        busy = sum(op.duration_ticks for op in self.ops)
        alone = _alone_ticks(self)
        object.__setattr__(self, "busy_ticks", busy)
        object.__setattr__(self, "alone_ticks", alone)
        object.__setattr__(self, "limit_ticks", self.slowdown_limit_permille * alone // 1000)

    @property
    def is_spread(self) -> bool:
        """Whether it has ops on other groups than its own."""
        return any(op.also or op.group not in {None, self.pinned_group} for op in self.ops)

    def groups_of(self, op: Op) -> tuple[str | None, ...]:
        """Groups the op holds at once, as far as they are known before the job is placed."""
        return (op.group or self.pinned_group, *op.also)

    def _check_ahead(self, owner: str) -> None:
        _check_int(self.ahead_ops, "ahead_ops", owner, 0, len(self.ops) - 1, "ops")
        _check_int(self.staleness, "staleness", owner, 0, MAX_STALENESS, "passes")
        ahead = {group for op in self.ops[: self.ahead_ops] for group in self.groups_of(op)}
        rest = {group for op in self.ops[self.ahead_ops :] for group in self.groups_of(op)}
        if (self.ahead_ops > 0) != (self.staleness > 0) or ahead & rest:
            raise ProblemError(
                f"{owner} has ahead_ops={self.ahead_ops} and staleness={self.staleness}, with ops "
                f"that run ahead on {_some(map(str, ahead))} and the others on "
                f"{_some(map(str, rest))}; give both or neither, and other groups to ops that run "
                "ahead"
            )


@dataclass(frozen=True, slots=True)
class Problem:
    """Jobs to be placed on groups and ordered there.

    Raises
    ------
    ProblemError
        A rule is broken: nothing to plan, ids that repeat, references to groups, pools or jobs
        that do not exist. The message gives the path inside the problem.
    """

    groups: tuple[Group, ...]
    """The groups there are."""
    jobs: tuple[Job, ...]
    """The jobs to serve, all of them."""
    current: Mapping[str, str] | None = None
    """Job → group where it is now; jobs may be missing. None: nothing runs yet."""
    horizon_ticks: int = HORIZON_TICKS
    """How long the plan is expected to be in force: what a move costs counts as a share of it."""
    is_linked: bool = field(init=False, repr=False, compare=False)
    """Whether jobs link groups to each other, being on several."""
    _jobs_by_id: Mapping[str, Job] = field(init=False, repr=False, compare=False)
    _groups_by_id: Mapping[str, Group] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        groups = _check_sequence(self.groups, Group, "groups", "the problem", MAX_ENTRIES)
        jobs = _check_sequence(self.jobs, Job, "jobs", "the problem", MAX_ENTRIES)
        for name, entries in (("groups", groups), ("jobs", jobs)):
            if not entries:
                raise ProblemError(f"{name} is empty; give at least one")
        _check_unique((group.id for group in groups), "groups", "the problem")
        _check_unique((job.id for job in jobs), "jobs", "the problem")
        object.__setattr__(self, "groups", groups)
        object.__setattr__(self, "jobs", jobs)
        object.__setattr__(self, "is_linked", any(job.is_spread for job in jobs))
        object.__setattr__(self, "_groups_by_id", {group.id: group for group in groups})
        object.__setattr__(self, "_jobs_by_id", {job.id: job for job in jobs})
        _check_int(self.horizon_ticks, "horizon_ticks", "the problem", 1, MAX_TICKS, "ticks (1 ms)")
        self._check_references()
        if self.current is not None:
            self._check_current(self.current)

    def job(self, job_id: str) -> Job:
        """The job of this id; KeyError if there is none."""
        return self._jobs_by_id[job_id]

    def group(self, group_id: str) -> Group:
        """The group of this id; KeyError if there is none."""
        return self._groups_by_id[group_id]

    @property
    def has_moves(self) -> bool:
        """Whether moving some job would cost anything."""
        return any(job.move_ticks and job.id in (self.current or {}) for job in self.jobs)

    def without_limits(self) -> Problem:
        """The same problem with every slowdown allowed: what a cluster runs at best effort."""
        jobs = (replace(job, slowdown_limit_permille=MAX_LIMIT_PERMILLE) for job in self.jobs)
        return replace(self, jobs=tuple(jobs))

    def to_json(self) -> dict[str, object]:
        """The problem as JSON types."""
        return {
            "format": FORMAT,
            "groups": [asdict(group) for group in self.groups],
            "jobs": [_job_to_json(job) for job in self.jobs],
            "current": None if self.current is None else dict(self.current),
            "horizon_ticks": self.horizon_ticks,
        }

    @classmethod
    def from_json(cls, data: object) -> Problem:
        """Read what `to_json` wrote (as JSON types, or as text).

        Raises
        ------
        ProblemError
            The data breaks a rule; the message begins with the path of the culprit.
        """
        if isinstance(data, str | bytes):
            data = _parse(data)
        entries = _check_object(data, "the problem", _FIELDS)
        if entries.get("format") != FORMAT:
            raise ProblemError(
                f"format is {entries.get('format')!r}; this version reads format {FORMAT}"
            )
        groups = _read_list(entries.get("groups"), "groups", _read_group)
        jobs = _read_list(entries.get("jobs"), "jobs", _read_job)
        current = entries.get("current")
        if current is not None and not isinstance(current, Mapping):
            raise ProblemError(f"current is {current!r}; give an object job → group, or null")
        horizon = entries.get("horizon_ticks", HORIZON_TICKS)
        return cls(groups, jobs, current, horizon)  # type: ignore[arg-type]

    def _check_references(self) -> None:
        pools = {group.pool for group in self.groups}
        is_linked = self.is_linked
        for index, job in enumerate(self.jobs):
            path = f"jobs[{index}] ({job.id!r})"
            if job.pool is not None and job.pool not in pools:
                raise ProblemError(
                    f"{path}: pool is {job.pool!r}, which no group has; "
                    f"use one of {_some(pools)} or null"
                )
            if job.pinned_group is not None and job.pinned_group not in self._groups_by_id:
                raise ProblemError(
                    f"{path}: pinned_group is {job.pinned_group!r}, which is no group; "
                    f"use one of {_some(self._groups_by_id)} or null"
                )
            for op in job.ops:
                self._check_groups(job, op, path)
            if is_linked and job.pinned_group is None:
                raise ProblemError(
                    f"{path}: pinned_group is null, while jobs here have ops on several groups, "
                    "which are ordered where they are; pin every job"
                )
            for other in job.forbids:
                if other == job.id or other not in self._jobs_by_id:
                    raise ProblemError(
                        f"{path}: forbids {other!r}, which is no other job; "
                        "name jobs of this problem only"
                    )

    def _check_groups(self, job: Job, op: Op, path: str) -> None:
        for group in job.groups_of(op):
            if group is not None and group not in self._groups_by_id:
                raise ProblemError(
                    f"{path}: op {op.name!r} runs on {group!r}, which is no group; "
                    f"use one of {_some(self._groups_by_id)} or null"
                )
        if job.groups_of(op)[0] in op.also:
            raise ProblemError(
                f"{path}: op {op.name!r} holds {list(op.also)} besides {job.groups_of(op)[0]!r}; "
                "name each group once"
            )

    def _check_current(self, current: Mapping[str, str]) -> None:
        for job_id, group_id in current.items():
            if job_id not in self._jobs_by_id:
                raise ProblemError(f"current names job {job_id!r}, which is no job; leave it out")
            if not isinstance(group_id, str) or group_id not in self._groups_by_id:
                raise ProblemError(
                    f"current[{job_id!r}] is {group_id!r}, which is no group; leave it out "
                    f"or use one of {_some(self._groups_by_id)}"
                )
        object.__setattr__(self, "current", dict(current))


def _alone_ticks(job: Job) -> int:
    """Shortest cycle of a job that has its groups for itself.

    Where ops run ahead, both parts of the loop go round by themselves, and a pass through both may
    take as many cycles as the one is ahead, and one more.
    """
    lengths = [op.duration_ticks + op.wait_ticks for op in job.ops]
    ahead, rest = sum(lengths[: job.ahead_ops]), sum(lengths[job.ahead_ops :])
    return max(ahead, rest, -(-(ahead + rest) // (1 + job.staleness)))


def _job_to_json(job: Job) -> dict[str, object]:
    values = asdict(job)
    return {name: values[name] for name in _names(Job)}


def _names(kind: type[Group | Op | Job]) -> tuple[str, ...]:
    return tuple(item.name for item in fields(kind) if item.init)


def _some(names: Iterable[str]) -> str:
    ordered = sorted(names)
    return ", ".join(repr(name) for name in ordered[:5]) + (" …" if len(ordered) > 5 else "")


def _check_int(value: object, name: str, owner: str, low: int, high: int, unit: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise ProblemError(
            f"{name} of {owner} is {value!r}; use a whole number of {unit} from {low} to {high}"
        )


def _check_text(value: object, name: str, owner: str) -> None:
    if not isinstance(value, str) or not value.strip() or _UNPRINTABLE.search(value):
        raise ProblemError(
            f"{name} of {owner} is {value!r}; use a text that is not blank, of printable characters"
        )


def _check_sequence(
    value: Iterable[_T], kind: type[_T], name: str, owner: str, most: int
) -> tuple[_T, ...]:
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise ProblemError(f"{name} of {owner} is {value!r}; give a sequence of {kind.__name__}")
    entries = tuple(value)
    if len(entries) > most:
        raise ProblemError(f"{name} of {owner} has {len(entries)} entries; at most {most} are read")
    for index, entry in enumerate(entries):
        if not isinstance(entry, kind):
            raise ProblemError(f"{name}[{index}] of {owner} is {entry!r}; give {kind.__name__}")
    return entries


def _check_unique(ids: Iterable[str], name: str, owner: str) -> None:
    seen: dict[str, int] = {}
    for index, found in enumerate(ids):
        if found in seen:
            raise ProblemError(
                f"{name}[{index}] of {owner} is {found!r}, as {name}[{seen[found]}] is; "
                "give each its own name"
            )
        seen[found] = index


def _parse(text: str | bytes) -> object:
    try:
        return json.loads(text)
    except ValueError as error:
        raise ProblemError(f"the problem is not JSON: {error}") from error


def _check_object(data: object, path: str, known: Iterable[str]) -> dict[str, object]:
    if not isinstance(data, Mapping):
        raise ProblemError(f"{path} is {data!r}; give an object")
    unknown = set(data) - set(known)
    if unknown:
        raise ProblemError(
            f"{path} has the unknown field {min(map(str, unknown))!r}; "
            f"the fields are {', '.join(known)}"
        )
    return dict(data)


def _read_list(data: object, path: str, read: Callable[[object, str], _T]) -> tuple[_T, ...]:
    if not isinstance(data, list | tuple):
        raise ProblemError(f"{path} is {data!r}; give a list")
    return tuple(read(entry, f"{path}[{index}]") for index, entry in enumerate(data))


def _build(kind: Callable[..., _T], values: Mapping[str, object], path: str) -> _T:
    try:
        return kind(**values)
    except ProblemError as error:
        raise ProblemError(f"{path}: {error}") from error
    except TypeError as error:
        raise ProblemError(f"{path} lacks a field: {error}") from error


def _read_group(data: object, path: str) -> Group:
    values = _check_object(data, path, _names(Group))
    return _build(Group, values, path)


def _read_op(data: object, path: str) -> Op:
    values = _check_object(data, path, _names(Op))
    return _build(Op, values, path)


def _read_job(data: object, path: str) -> Job:
    values = _check_object(data, path, _names(Job))
    values["ops"] = _read_list(values.get("ops"), f"{path}.ops", _read_op)
    return _build(Job, values, path)
