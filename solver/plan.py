"""What was decided: who is placed where, and the cyclic timeline of each group."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from solver.errors import PlanError

FORMAT = 1
"""Version of the JSON form."""
PLAN_ORDER = "plan_order"
"""Name, in files, of the rule that serves a plan's orders: `PlanOrderWithBackfill`."""


@dataclass(frozen=True, slots=True)
class Timing:
    """When one op runs in its group's cycle."""

    job: str
    op: str
    start_ticks: int
    """Start within the cycle, from 0 to below its length; the switch lies before it."""
    wraps: int
    """Cycles between the one in which the job's first op (of its first pass) starts and the one
    this op starts in."""


@dataclass(frozen=True, slots=True)
class Timeline:
    """The cycle of one group: every job placed there passes its loop once."""

    group: str
    cycle_ticks: int
    """Length of the cycle: the iteration time of every job that passes its loop once in it."""
    timings: tuple[Timing, ...]
    """Every op of every job placed here, by start; as often as the job passes its loop."""

    def __post_init__(self) -> None:
        if self.cycle_ticks < 1 or not self.timings:
            raise PlanError(
                f"timeline of group {self.group!r} has a cycle of {self.cycle_ticks} ticks and "
                f"{len(self.timings)} ops; both must be at least 1: leave out idle groups"
            )
        ordered = sorted(self.timings, key=lambda timing: (timing.start_ticks, timing.job))
        object.__setattr__(self, "timings", tuple(ordered))

    @property
    def passes(self) -> dict[str, int]:
        """Job → times it passes its loop in a cycle."""
        ops = Counter((timing.job, timing.op) for timing in self.timings)
        return {job: count for (job, _), count in ops.items()}

    @property
    def order(self) -> tuple[tuple[str, str], ...]:
        """Dispatch order: ``(job, op)`` by start, repeated cyclically."""
        return tuple((timing.job, timing.op) for timing in self.timings)

    @property
    def prefetch(self) -> tuple[tuple[str, str], ...]:
        """Ops that need a switch, in order: while one runs, the state of the next is fetched."""
        return tuple(
            here
            for before, here in zip((self.order[-1], *self.order), self.order, strict=False)
            if before[0] != here[0]
        )


@dataclass(frozen=True, slots=True)
class Plan:
    """Placement, timelines and what they promise."""

    placement: Mapping[str, str]
    """Job → group."""
    timelines: tuple[Timeline, ...]
    """One per group that serves a job."""
    slowdowns_permille: Mapping[str, int]
    """Job → predicted iteration time shared ÷ alone, in permille, rounded up."""
    objective_ticks: int
    """Sum over groups of price × cycle length: priced group-ticks in which every job passes one
    iteration (or more, where `has_repeats`), idle time included. With one group of price 1 it is
    the cycle length."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "placement", dict(self.placement))
        object.__setattr__(self, "slowdowns_permille", dict(self.slowdowns_permille))
        object.__setattr__(self, "timelines", tuple(self.timelines))
        groups = [timeline.group for timeline in self.timelines]
        if len(set(groups)) != len(groups):
            raise PlanError(f"a group has two timelines among {groups}; give each group one")

    @property
    def has_repeats(self) -> bool:
        """Whether some job passes its loop more than once in the cycle of its group."""
        return any(max(timeline.passes.values()) > 1 for timeline in self.timelines)

    @property
    def orders(self) -> dict[str, tuple[tuple[str, str], ...]]:
        """Group → dispatch order (see `Timeline.order`)."""
        return {timeline.group: timeline.order for timeline in self.timelines}

    def timeline(self, group: str) -> Timeline | None:
        """The timeline of a group, or None if it serves no job."""
        return next((entry for entry in self.timelines if entry.group == group), None)

    def to_json(self) -> dict[str, object]:
        """The plan as JSON types; the orders are written out for readers of the file."""
        return {
            "format": FORMAT,
            "placement": dict(self.placement),
            "rule": {"name": PLAN_ORDER},
            "timelines": [_timeline_to_json(timeline) for timeline in self.timelines],
            "slowdowns_permille": dict(self.slowdowns_permille),
            "objective_ticks": self.objective_ticks,
        }

    @classmethod
    def from_json(cls, data: object) -> Plan:
        """Read what `to_json` wrote (as JSON types, or as text).

        Raises
        ------
        PlanError
            The data is malformed or of another format.
        """
        data = parsed(data)
        if not isinstance(data, Mapping) or data.get("format") != FORMAT:
            found = data.get("format") if isinstance(data, Mapping) else data
            raise PlanError(f"format of the plan is {found!r}; this version reads format {FORMAT}")
        rule = data.get("rule", {"name": PLAN_ORDER})
        if not isinstance(rule, Mapping) or rule.get("name") != PLAN_ORDER:
            raise PlanError(
                f"rule of the plan is {rule!r}; a plan with timelines is served by {PLAN_ORDER!r}: "
                "leave it out"
            )
        return cls(
            placement=_texts(data.get("placement"), "placement"),
            timelines=tuple(_read_timelines(data.get("timelines"))),
            slowdowns_permille=_integers(data.get("slowdowns_permille"), "slowdowns_permille"),
            objective_ticks=_integer(data.get("objective_ticks"), "objective_ticks"),
        )


def parsed(data: object) -> object:
    """A plan's JSON types, of which it may be the text.

    Raises
    ------
    PlanError
        It is text, but not of JSON.
    """
    if not isinstance(data, str | bytes):
        return data
    try:
        return json.loads(data)
    except ValueError as error:
        raise PlanError(f"the plan is not JSON: {error}") from error


def _timeline_to_json(timeline: Timeline) -> dict[str, object]:
    return {
        "group": timeline.group,
        "cycle_ticks": timeline.cycle_ticks,
        "timings": [
            {
                "job": timing.job,
                "op": timing.op,
                "start_ticks": timing.start_ticks,
                "wraps": timing.wraps,
            }
            for timing in timeline.timings
        ],
        "order": [list(entry) for entry in timeline.order],
        "prefetch": [list(entry) for entry in timeline.prefetch],
    }


def _read_timelines(data: object) -> Iterator[Timeline]:
    for index, entry in enumerate(_list(data, "timelines")):
        path = f"timelines[{index}]"
        values = _object(entry, path)
        timeline = Timeline(
            group=_text(values.get("group"), f"{path}.group"),
            cycle_ticks=_integer(values.get("cycle_ticks"), f"{path}.cycle_ticks"),
            timings=tuple(_read_timings(values.get("timings"), f"{path}.timings")),
        )
        for name in ("order", "prefetch"):
            written = _timeline_to_json(timeline)[name]
            if values.get(name, written) != written:
                raise PlanError(f"{path}.{name} contradicts the timings; leave it out")
        yield timeline


def _read_timings(data: object, path: str) -> Iterator[Timing]:
    for index, entry in enumerate(_list(data, path)):
        here = f"{path}[{index}]"
        values = _object(entry, here)
        yield Timing(
            job=_text(values.get("job"), f"{here}.job"),
            op=_text(values.get("op"), f"{here}.op"),
            start_ticks=_integer(values.get("start_ticks"), f"{here}.start_ticks"),
            wraps=_integer(values.get("wraps"), f"{here}.wraps"),
        )


def _object(data: object, path: str) -> Mapping[str, object]:
    if not isinstance(data, Mapping):
        raise PlanError(f"{path} of the plan is {data!r}; give an object")
    return data


def _list(data: object, path: str) -> list[object]:
    if not isinstance(data, list):
        raise PlanError(f"{path} of the plan is {data!r}; give a list")
    return data


def _text(data: object, path: str) -> str:
    if not isinstance(data, str):
        raise PlanError(f"{path} of the plan is {data!r}; give a text")
    return data


def _integer(data: object, path: str) -> int:
    if isinstance(data, bool) or not isinstance(data, int):
        raise PlanError(f"{path} of the plan is {data!r}; give a whole number")
    return data


def _texts(data: object, path: str) -> dict[str, str]:
    return {key: _text(value, f"{path}.{key}") for key, value in _object(data, path).items()}


def _integers(data: object, path: str) -> dict[str, int]:
    return {key: _integer(value, f"{path}.{key}") for key, value in _object(data, path).items()}
