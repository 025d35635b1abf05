"""Plans of several pools on a running cluster: where jobs sit, and the rule they were scored with.

The rule goes to the arbiter as the orders of other plans do, and the next plans keep it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from dataflow.phases import Phase
from plexrl.core.placement import Placement
from plexrl.errors import JobError
from plexrl.planning.arranging import simulated
from plexrl.planning.problems import EstimatedJob, linked_groups
from solver.dispatch.events import DispatchPlan
from solver.dispatch.shortest import ShortestFirst
from solver.seating import Seat
from solver.seatplan import SeatPlan


def seated(plan: SeatPlan, jobs: Iterable[EstimatedJob]) -> tuple[EstimatedJob, ...]:
    """Jobs where a plan seats them: rollouts on one group, all that nobody placed on the other.

    Raises
    ------
    JobError
        A job has two seats, or a seat has several groups for one role.
    """
    seats = {seat.job: seat for seat in plan.seats}
    if len(seats) != len(plan.seats):
        raise JobError("the plan seats a job twice; try: plexrl verify FILE PLAN")
    return tuple(replace(entry, placement=_placement(entry, seats[entry.name])) for entry in jobs)


def ruled(plan: SeatPlan) -> DispatchPlan:
    """The rule of a plan, on all groups that it uses.

    Raises
    ------
    JobError
        It names none, or leaves out a job.
    """
    missing = sorted(
        {seat.job for seat in plan.seats} - set(plan.rule.tolerances if plan.rule else ())
    )
    if plan.rule is None or missing:
        raise JobError(
            "the plan does not say by which rule its groups serve "
            f"{', '.join(missing) or 'jobs'}: make it anew with plexrl plan --output"
        )
    return DispatchPlan(rules=dict.fromkeys(sorted(plan.groups), plan.rule))


def kept_rules(
    rules: Mapping[str, ShortestFirst], jobs: Sequence[EstimatedJob]
) -> dict[str, ShortestFirst]:
    """Rules that go on: those that leave out no job on their group and the groups linked to it.

    Parameters
    ----------
    rules
        Group → its rule.
    jobs
        All jobs, where they are.
    """
    found = {}
    for group, rule in rules.items():
        circle = linked_groups(jobs, [group])
        here = {entry.name for entry in jobs if not circle.isdisjoint(entry.placement.groups)}
        if here <= rule.tolerances.keys():
            found[group] = rule
    return found


def ruled_circles(
    jobs: Sequence[EstimatedJob], rules: Mapping[str, ShortestFirst]
) -> Iterator[tuple[EstimatedJob, ...]]:
    """Jobs that meet on groups with a rule, directly or by others."""
    seen: set[str] = set()
    for group in rules:
        if group not in seen:
            circle = linked_groups(jobs, [group])
            seen |= circle
            yield tuple(entry for entry in jobs if not circle.isdisjoint(entry.placement.groups))


def pace(
    jobs: Sequence[EstimatedJob], dispatch: DispatchPlan
) -> tuple[Mapping[str, float], Mapping[str, float]]:
    """Seconds of an iteration of each job under a plan, and how many times that is its time alone.

    Raises
    ------
    JobError
        A job ends no iteration, or is slowed beyond its limit.
    """
    periods: dict[str, float] = {}
    for circle in ruled_circles(jobs, dispatch.rules):
        served = simulated([entry.spot for entry in circle], dispatch)
        if served is None:
            raise JobError(
                "the plan does not hold with the lengths measured here: of the jobs "
                f"{', '.join(entry.name for entry in circle)} one ends no iteration while the "
                "longest ends some. Nothing was changed"
            )
        periods |= served.periods_s
    slowdowns = {entry.name: periods[entry.name] / _alone_s(entry) for entry in jobs}
    broken = [
        f"job {entry.name!r} is slowed to {slowdowns[entry.name]:.3f}, its limit is "
        f"{entry.job.slowdown_limit:g}"
        for entry in jobs
        if slowdowns[entry.name] > entry.job.slowdown_limit
    ]
    if broken:
        raise JobError(
            "the plan does not hold with the lengths measured here: "
            f"{'; '.join(broken)}. Nothing was changed"
        )
    return periods, slowdowns


def _alone_s(entry: EstimatedJob) -> float:
    """Seconds of an iteration with nobody beside."""
    alone = simulated([entry.spot])
    assert alone is not None, "a job alone ends iterations"
    return alone.periods_s[entry.name]


def _placement(entry: EstimatedJob, seat: Seat) -> Placement:
    for what, groups in (("trained", seat.train), ("sampled", seat.rollout)):
        if len(groups) != 1:
            raise JobError(
                f"the plan has job {entry.name!r} {what} on {', '.join(groups) or 'no group'}; a "
                "cluster serves all of that on one group: pin the job's ops to one of each pool "
                "in the problem file (group: NAME) and plan again. Nothing was changed"
            )
    fixed = {key: group for key, group in entry.job.pins.items() if "." in key or key == "logprob"}
    found = Placement.of(seat.train[0], {**fixed, Phase.ROLLOUT: seat.rollout[0]})
    is_there = found.home == entry.placement.home and all(
        found.group_of_op(estimate.op) == entry.placement.group_of_op(estimate.op)
        for estimate in entry.ops
    )
    return entry.placement if is_there else found
