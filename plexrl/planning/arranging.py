"""Whether a job would do better on other groups: every single move, judged by simulation.

One job at a time: the next plan sees what the last move came to. The planner's quick look
(`solver.queueing`) is within a percent of the simulator for functions served as they come.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from dataflow.phases import Phase
from plexrl.core.placement import Arrangement, Placement
from plexrl.planning.facts import GroupFacts, PlannedJob, Warm
from plexrl.planning.placing import memory_of
from plexrl.planning.profiles import OpEstimate
from solver.dispatch.events import TICKS_PER_S, DispatchPlan
from solver.errors import ProblemError
from solver.queueing import queue_ends
from solver.simulate import SimJob, SimOp, simulate

CYCLES = 12
"""Iterations of the longest job that a simulation covers: enough for a steady pattern, about a
millisecond of computing."""
MAX_CANDIDATES = 24
"""Moves that are simulated at most, those that even the load out most."""
MAX_MOVABLE = 24
"""Jobs that are considered for a move, those on the busiest groups: one moves at a time."""
MAX_TARGETS = 8
"""Groups that are considered for it, the least busy ones."""
LEAST_GAIN = 0.1
"""Share of work per second of the jobs it affects by which a move must be better: profiles are not
surer than that, and groups that jobs are spread over have no planned order."""
LEAST_ITERATIONS = 4
"""Iterations a job must have been seen for before anything is moved for it."""
STOP_S = 1.0
"""Seconds a job stands still when it moves, besides what its state takes: its driver begins anew,
or a group opens its models."""
ENGINE_START_S = 5.0
"""Seconds that a group serves nobody while it starts an engine it did not have: 3 on an idle
machine, several times that on a busy one."""

Spot = tuple[PlannedJob, Placement, tuple[OpEstimate, ...]]
"""A job, where it is, and what is expected of its ops."""


@dataclass(frozen=True, slots=True)
class Forecast:
    """What a simulation of the profiles promises."""

    periods_s: Mapping[str, float]
    """Job → mean seconds of its iterations."""
    rate: float
    """Sum over jobs of weight × seconds of an iteration run op by op ÷ period: work per second."""


@dataclass(frozen=True, slots=True)
class Rearrangement:
    """A job that would do better elsewhere."""

    job: str
    placement: Placement
    """Where."""
    gain: float
    """Share of work per second won."""
    gained_s: float
    """Seconds of work won until the job ends."""
    cost_s: float
    """Seconds of work lost by moving."""

    def to_json(self) -> dict[str, object]:
        """The move as JSON types."""
        return {
            "job": self.job,
            "groups": list(self.placement.groups),
            "gain": self.gain,
            "gained_s": self.gained_s,
            "cost_s": self.cost_s,
        }


def forecast(spots: Sequence[Spot]) -> Forecast | None:
    """Simulate jobs where they are; None if one of them gets nowhere, or there is none."""
    if not spots:
        return None
    horizon_s = CYCLES * max(serial_s(ops) for _, _, ops in spots)
    jobs = [sim_job(job, placement, ops, horizon_s) for job, placement, ops in spots]
    if any(len(op.groups) > 1 for job in jobs for op in job.ops):
        # The quick look knows one group at a time.
        return simulated(spots)
    ends = queue_ends(jobs, horizon_s)
    if not all(ends):
        return None
    return _forecast(spots, {job.name: found for job, found in zip(jobs, ends, strict=True)})


def simulated(spots: Sequence[Spot], plan: DispatchPlan | None = None) -> Forecast | None:
    """The same by the arbiter that serves them, under a plan; by default first ready.

    It takes some ten times as long.
    """
    horizon_s = CYCLES * max(serial_s(ops) for _, _, ops in spots)
    jobs = [sim_job(job, placement, ops, horizon_s) for job, placement, ops in spots]
    try:
        return _forecast(spots, simulate(jobs, plan, until_s=horizon_s).ends_ticks)
    except ProblemError:
        return None


def _forecast(spots: Sequence[Spot], ends: Mapping[str, Sequence[int]]) -> Forecast:
    """What is promised if iterations of the jobs end at these ticks."""
    periods = {name: found[-1] / len(found) / TICKS_PER_S for name, found in ends.items()}
    rate = sum(job.weight * serial_s(ops) / periods[job.name] for job, _, ops in spots)
    return Forecast(periods, rate)


def num_ahead(job: PlannedJob, ops: Sequence[OpEstimate]) -> int:
    """Ops at the start of an iteration that may run before the one before has ended."""
    trains = [index for index, op in enumerate(ops) if f".{Phase.TRAIN}." in op.op]
    return trains[0] if job.staleness and trains else 0


def sim_job(
    job: PlannedJob, placement: Placement, ops: Sequence[OpEstimate], horizon_s: float
) -> SimJob:
    """A job as the simulator takes it, with what is expected of it until the horizon."""
    ahead = num_ahead(job, ops)
    # Two iterations at most run at once on groups of their own.
    iterations = 2 * math.ceil(horizon_s / serial_s(ops)) + 2
    row = tuple((_ticks(op.busy_s) or 1, _ticks(op.wait_s)) for op in ops)
    return SimJob(
        name=job.name,
        ops=tuple(
            SimOp(
                name=op.op,
                duration_s=max(op.busy_s, 1 / TICKS_PER_S),
                wait_s=op.wait_s,
                groups=placement.lease_groups(op.op, is_setup=False),
                swap_s=op.swap_s,
            )
            for op in ops
        ),
        iterations=iterations,
        tape=(row,) * iterations,
        ahead_ops=ahead,
        staleness=job.staleness if ahead else 0,
    )


def serial_s(ops: Sequence[OpEstimate]) -> float:
    """Seconds of an iteration whose ops come one after the other, with nobody beside."""
    return max(sum(op.busy_s + op.wait_s for op in ops), 1 / TICKS_PER_S)


def rearrange(
    spots: Sequence[Spot],
    groups: Sequence[GroupFacts],
    left: Mapping[str, int],
    bytes_per_s: float,
    warm: Warm | None = None,
) -> Rearrangement | None:
    """The move of one job that wins most, if any pays for itself.

    Parameters
    ----------
    spots
        All jobs.
    groups
        Groups that take jobs.
    left
        Job → iterations it still has to run, of those that may be moved.
    bytes_per_s
        How fast states move between host memory and the store, as measured.
    warm
        Which groups have which engines; none has any by default.
    """
    found = []
    for spot, placement in _candidates(spots, groups, left):
        cost_s = spot[0].weight * move_s(spot[0], spot[1], placement, bytes_per_s)
        cost_s += _start_s(spots, spot[0], placement, warm or {})
        move = _judged(_affected(spots, spot, placement), spot, placement, left, cost_s)
        if move is not None:
            found.append(move)
    return max(found, key=lambda move: move.gained_s - move.cost_s, default=None)


def _affected(spots: Sequence[Spot], spot: Spot, placement: Placement) -> tuple[Spot, ...]:
    """Jobs that a move may speed up or slow down: those on its groups, and beside these."""
    groups = {*spot[1].groups, *placement.groups}
    while True:
        found = tuple(s for s in spots if not groups.isdisjoint(s[1].groups))
        wider = groups.union(*(s[1].groups for s in found))
        if wider == groups:
            return found
        groups = wider


def _judged(
    spots: Sequence[Spot],
    spot: Spot,
    placement: Placement,
    left: Mapping[str, int],
    cost_s: float,
) -> Rearrangement | None:
    """The move, if the jobs it affects gain enough by it."""
    job = spot[0]
    now = forecast(spots)
    then = forecast([(j, placement if j is job else at, o) for j, at, o in spots])
    if now is None or then is None:
        return None
    gain = then.rate / now.rate - 1
    gained_s = (then.rate - now.rate) * left[job.name] * now.periods_s[job.name]
    if gain < LEAST_GAIN or gained_s <= cost_s:
        return None
    return Rearrangement(job.name, placement, gain, gained_s, cost_s)


def move_s(job: PlannedJob, was: Placement, placement: Placement, bytes_per_s: float) -> float:
    """Seconds a job stands still while it moves.

    A new home reads what the old one writes; a group that only samples copies the weights.
    """
    if placement.home == was.home:
        return STOP_S + job.copy_bytes / bytes_per_s
    return STOP_S + 2 * job.memory_bytes / bytes_per_s


def _start_s(spots: Sequence[Spot], job: PlannedJob, placement: Placement, warm: Warm) -> float:
    """Seconds of work lost while groups start engines for a job, by it and by those beside it."""
    lost_s = 0.0
    for group in placement.groups:
        needed = {(group == placement.home, engine) for engine in job.engines}
        num_starts = len(needed - warm.get(group, frozenset()))
        beside = sum(j.weight for j, at, _ in spots if j is not job and group in at.groups)
        lost_s += num_starts * ENGINE_START_S * (job.weight + beside)
    return lost_s


def _candidates(
    spots: Sequence[Spot], groups: Sequence[GroupFacts], left: Mapping[str, int]
) -> Iterator[tuple[Spot, Placement]]:
    """Single moves that are allowed and have room, those that even out the load most first.

    Where there are many jobs and groups, moves of jobs on the busiest groups to the least busy.
    """
    loads = _loads(spots)
    movable = [spot for spot in spots if spot[0].name in left]
    movable.sort(key=lambda spot: -max(loads.get(group, 0.0) for group in spot[1].groups))
    free = sorted(groups, key=lambda group: loads.get(group.name, 0.0))[:MAX_TARGETS]
    options = [
        (spot, placement)
        for spot in movable[:MAX_MOVABLE]
        for placement in _options(spot[0], _targets(spot[1], free, groups))
        if placement != spot[1] and _has_room(spot[0], placement, spots, groups)
    ]
    options.sort(key=lambda option: _peak(loads, *option))
    yield from options[:MAX_CANDIDATES]


def _targets(
    was: Placement, free: Sequence[GroupFacts], groups: Sequence[GroupFacts]
) -> list[GroupFacts]:
    """Where a job may go: groups that are hardly busy, and those it is on."""
    names = {*was.groups, *(group.name for group in free)}
    return [group for group in groups if group.name in names]


def _options(job: PlannedJob, groups: Sequence[GroupFacts]) -> Iterator[Placement]:
    """Placements that a job's arrangement and pins allow."""
    if job.arrangement is Arrangement.PRIVATE_ROLLOUT:
        return
    names = [group.name for group in groups]
    others = {key: group for key, group in job.pins.items() if "." in key or key == "logprob"}
    for home in [job.pins.get("train", "")] if "train" in job.pins else names:
        for rollout in [job.pins["rollout"]] if "rollout" in job.pins else names:
            is_apart = rollout != home
            if job.arrangement.is_split and not is_apart:
                continue
            if job.arrangement is Arrangement.COLOCATED and is_apart:
                continue
            yield Placement.of(home, {**others, "rollout": rollout})


def _has_room(
    job: PlannedJob, placement: Placement, spots: Sequence[Spot], groups: Sequence[GroupFacts]
) -> bool:
    for group in groups:
        needed = memory_of(job, placement, group.name)
        if needed is None:
            continue
        others = [(j, at) for j, at, _ in spots if j is not job and group.name in at.groups]
        used = sum(memory_of(j, at, group.name) or 0 for j, at in others)
        is_private = any(
            j.arrangement is Arrangement.PRIVATE_ROLLOUT and group.name in at.guests
            for j, at in others
        )
        is_full = group.max_jobs is not None and len(others) >= group.max_jobs
        if is_private or is_full or used + needed > group.memory_bytes:
            return False
    return True


def _loads(spots: Sequence[Spot]) -> dict[str, float]:
    """Group → share of time that its jobs want it."""
    loads: dict[str, float] = {}
    for _, placement, ops in spots:
        _add_load(loads, placement, ops, 1.0)
    return loads


def _add_load(
    loads: dict[str, float], placement: Placement, ops: Sequence[OpEstimate], times: float
) -> None:
    for op in ops:
        for group in placement.lease_groups(op.op, is_setup=False):
            loads[group] = loads.get(group, 0.0) + times * op.busy_s / serial_s(ops)


def _peak(loads: Mapping[str, float], spot: Spot, placement: Placement) -> float:
    """Largest share of time that a group would be wanted if a job moved."""
    changed = dict(loads)
    _add_load(changed, spot[1], spot[2], -1.0)
    _add_load(changed, placement, spot[2], 1.0)
    return max(changed.values())


def _ticks(seconds: float) -> int:
    return round(seconds * TICKS_PER_S)
