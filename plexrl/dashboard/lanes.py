"""What a timeline shows, as plain bars: planned, actual, and what each job did and waited for."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import pairwise
from statistics import median

from solver.dispatch.events import TICKS_PER_S
from solver.trace import LeaseRecord

MAX_PLANNED_BARS = 4000
"""Planned bars drawn at most: enough for minutes of short cycles, few enough for a browser."""

_SHORTEST_S = 1e-6
"""Bars below a microsecond carry nothing for the eye."""


class Kind(StrEnum):
    """What a bar stands for."""

    PLANNED = "planned"
    HELD = "held"
    """A lease, its swap left out."""
    SWAP = "swap"
    QUEUED = "queued"
    """Ready, and waiting for its group."""
    APART = "apart"
    """Between two LLM functions: tools, rewards, judges. No group is held."""


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar; times in seconds on the cluster's clock."""

    section: str
    """``plan``, ``actual`` or ``jobs``."""
    lane: str
    """Group, or job in the section of jobs."""
    job: str
    kind: Kind
    function: str
    """Phase it belongs to; empty where it is none."""
    start_s: float
    end_s: float
    op: str = ""
    note: str = ""
    """What a reader wants to know beyond the length, in plain words."""


@dataclass(frozen=True, slots=True)
class AdoptedPlan:
    """A plan and when it came into force."""

    adopted_s: float
    plan: Mapping[str, object]
    """As `solver.Plan.to_json` writes it; empty where there was none."""
    lengths_s: Mapping[tuple[str, str], float] = field(default_factory=dict)
    """(job, op) → seconds it was planned with."""


def adopted_plan(plan_json: Mapping[str, object], adopted_s: float) -> AdoptedPlan:
    """The plan in force, read from what `plexrl.runtime` tells about planning.

    Parameters
    ----------
    plan_json
        ``in_force.plan`` is the plan, ``in_force.problem`` what it was solved for,
        ``in_force.ordered`` the groups that follow its order.
    adopted_s
        When it came into force.
    """
    in_force = _part(plan_json, "in_force")
    lengths_s = {
        (str(job.get("id")), str(op.get("name"))): _number(op, "duration_ticks") / TICKS_PER_S
        for job in _rows(_part(in_force, "problem"), "jobs")
        for op in _rows(job, "ops")
    }
    plan, ordered = _part(in_force, "plan"), in_force.get("ordered")
    if isinstance(ordered, list):
        # Groups that serve whoever is ready first repeat no cycle.
        lines = [line for line in _rows(plan, "timelines") if line.get("group") in ordered]
        plan = {**plan, "timelines": lines} if plan else plan
    return AdoptedPlan(adopted_s, plan, lengths_s)


def function_of(op: str) -> str:
    """Phase of an op: ``actor.rollout.0`` → ``rollout``."""
    parts = op.rsplit(".", 2)
    return parts[1] if len(parts) == 3 else op


def lengths(leases: Iterable[LeaseRecord]) -> dict[tuple[str, str], float]:
    """Median seconds of the leases of each (job, op)."""
    held: dict[tuple[str, str], list[float]] = defaultdict(list)
    for lease in leases:
        held[lease.job, lease.op].append(lease.held_s)
    return {key: median(values) for key, values in held.items()}


def actual_bars(leases: Iterable[LeaseRecord]) -> list[Bar]:
    """Lanes of the groups as they were: a swap and the function itself for each lease."""
    bars = []
    for lease in leases:
        swapped_s = lease.started_s + lease.swap_s
        from_store = lease.swap_source == "store"
        note = _lease_note(lease)
        common = {"section": "actual", "lane": lease.group, "job": lease.job, "op": lease.op}
        bars.append(
            Bar(
                **common,
                kind=Kind.SWAP,
                function="store" if from_store else "host",
                start_s=lease.started_s,
                end_s=swapped_s,
                note=f"{lease.swap_bytes / 1e6:.1f} MB from {lease.swap_source}; {note}",
            )
        )
        bars.append(
            Bar(
                **common,
                kind=Kind.HELD,
                function=function_of(lease.op),
                start_s=swapped_s,
                end_s=lease.ended_s,
                note=note,
            )
        )
    return _visible(bars)


def job_bars(leases: Iterable[LeaseRecord]) -> list[Bar]:
    """One lane per job: queued, holding its group, and apart from it.

    One that samples ahead on another group than it trains on has a lane for each.
    """
    by_job: dict[str, list[LeaseRecord]] = defaultdict(list)
    for lease in leases:
        by_job[lease.job].append(lease)
    bars: list[Bar] = []
    for job, records in by_job.items():
        records.sort(key=lambda lease: lease.started_s)
        lanes = _lanes_of(job, records)
        for lease in records:
            bars += _lease_bars(lanes[lease.group], lease)
        bars += _apart_bars(lanes, records)
    return _visible(bars)


def _lanes_of(job: str, records: Sequence[LeaseRecord]) -> dict[str, str]:
    """Group → lane of a job there; its leases come by start."""
    groups = dict.fromkeys(lease.group for lease in records)
    is_parallel = any(
        after.started_s < before.ended_s and after.id != before.id
        for before, after in pairwise(records)
    )
    return {group: f"{job} on {group}" if is_parallel else job for group in groups}


def _lease_bars(lane: str, lease: LeaseRecord) -> Iterable[Bar]:
    common = {"section": "jobs", "lane": lane, "job": lease.job, "op": lease.op}
    function, note = function_of(lease.op), _lease_note(lease)
    yield Bar(
        **common,
        kind=Kind.QUEUED,
        function=function,
        start_s=lease.ready_s,
        end_s=lease.started_s,
        note=f"waits for {lease.group}; {note}",
    )
    yield Bar(
        **common,
        kind=Kind.HELD,
        function=function,
        start_s=lease.started_s,
        end_s=lease.ended_s,
        note=f"on {lease.group}; {note}",
    )


def _apart_bars(lanes: Mapping[str, str], records: Sequence[LeaseRecord]) -> Iterable[Bar]:
    """Where a job holds no group at all: what runs ahead may still hold one, or several at once."""
    last = records[0]
    for lease in records[1:]:
        yield Bar(
            section="jobs",
            lane=lanes[last.group],
            job=lease.job,
            kind=Kind.APART,
            function="",
            start_s=last.ended_s,
            end_s=lease.ready_s,
            op=f"{last.op} → {lease.op}",
            note=f"tools, rewards or judge, no group held; iteration {lease.iteration}",
        )
        last = max(last, lease, key=lambda lease: lease.ended_s)


def _lease_note(lease: LeaseRecord) -> str:
    waited_s = lease.started_s - lease.ready_s
    note = (
        f"iteration {lease.iteration}, version {lease.version}, held {lease.held_s:.3f} s, "
        f"swap {lease.swap_s * 1e3:.1f} ms, waited {waited_s:.3f} s"
    )
    if lease.ahead_s:
        note += f", {lease.ahead_s:.3f} s of it done ahead"
    return note if lease.outcome == "done" else f"{note}, {lease.outcome}"


def planned_bars(
    plans: Sequence[AdoptedPlan],
    lengths_s: Mapping[tuple[str, str], float],
    until_s: float,
    *,
    since_s: float = 0.0,
    groups: frozenset[str] | None = None,
) -> list[Bar]:
    """Lanes of the groups as they were planned: each plan's cycle, repeated while in force.

    Parameters
    ----------
    plans
        In order of adoption.
    lengths_s
        (job, op) → seconds, for ops whose planned length is not known.
    until_s
        End of the run.
    since_s
        Cycles that ended before are left out.
    groups
        Groups to draw; None draws all.
    """
    bars: list[Bar] = []
    ends = [*(plan.adopted_s for plan in plans[1:]), until_s]
    for adopted, end_s in zip(plans, ends, strict=False):
        if end_s <= since_s:
            continue
        known_s = {**lengths_s, **adopted.lengths_s}
        for timeline in _rows(adopted.plan, "timelines"):
            if groups is not None and timeline.get("group") not in groups:
                continue
            room = MAX_PLANNED_BARS - len(bars)
            bars += _repeated(timeline, known_s, (adopted.adopted_s, end_s), since_s)[:room]
    return _visible(bars)


def _repeated(
    timeline: Mapping[str, object],
    lengths_s: Mapping[tuple[str, str], float],
    span_s: tuple[float, float],
    since_s: float,
) -> list[Bar]:
    start_s, end_s = span_s
    cycle_s = _number(timeline, "cycle_ticks") / TICKS_PER_S
    timings = _rows(timeline, "timings")
    if cycle_s <= 0 or not timings:
        return []
    bars = []
    # An op may begin near the end of its cycle, so the one before is drawn too.
    first = max(0, int((since_s - start_s) / cycle_s) - 1)
    last = int((end_s - start_s) / cycle_s) + 1
    for cycle in range(first, min(last, first + MAX_PLANNED_BARS // len(timings) + 1)):
        for timing in timings:
            job, op = str(timing["job"]), str(timing["op"])
            at_s = start_s + cycle * cycle_s + _number(timing, "start_ticks") / TICKS_PER_S
            length_s = lengths_s.get((job, op))
            if length_s is None or at_s >= end_s:
                continue
            bars.append(
                Bar(
                    section="plan",
                    lane=str(timeline["group"]),
                    job=job,
                    kind=Kind.PLANNED,
                    function=function_of(op),
                    start_s=at_s,
                    end_s=min(at_s + length_s, end_s),
                    op=op,
                    note=f"cycle {cycle} of {cycle_s:.3f} s",
                )
            )
    return bars


def _part(data: Mapping[str, object], name: str) -> Mapping[str, object]:
    found = data.get(name)
    return found if isinstance(found, Mapping) else {}


def _rows(data: Mapping[str, object], name: str) -> list[Mapping[str, object]]:
    found = data.get(name)
    if not isinstance(found, list | tuple):
        return []
    return [row for row in found if isinstance(row, Mapping)]


def _number(data: Mapping[str, object], name: str) -> float:
    found = data.get(name)
    return float(found) if isinstance(found, int | float) else 0.0


def _visible(bars: Iterable[Bar]) -> list[Bar]:
    return [bar for bar in bars if bar.end_s - bar.start_s > _SHORTEST_S]
