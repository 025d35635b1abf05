"""A plan made elsewhere, checked against the cluster it shall run on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import solver
from dataflow.phases import Phase
from plexrl.core.placement import PINNABLE, Placement, model_and_phase
from plexrl.errors import JobError
from plexrl.planning.facts import GroupFacts
from plexrl.planning.placing import check_together
from plexrl.planning.problems import EstimatedJob, build_problem, dispatch_plan
from plexrl.planning.proposals import PlanRequest, Proposal, rule_note
from plexrl.planning.seated import pace, ruled, seated
from solver.plan import parsed
from solver.retime import retime
from solver.seatplan import SeatPlan

APPLIED = "applied"
"""Status of a plan that an operator brought."""


def read_plan(text: str) -> solver.Plan | SeatPlan:
    """A plan of one pool or of several from its JSON form.

    Raises
    ------
    JobError
        It is none.
    """
    try:
        data = parsed(text)
        if isinstance(data, Mapping) and "seats" in data:
            return SeatPlan.from_json(data)
        return solver.Plan.from_json(data)
    except (ValueError, solver.PlanError) as error:
        raise JobError(f"{error}; give what 'plexrl plan --output' wrote") from error


def check_names(plan: solver.Plan | SeatPlan, jobs: Iterable[str], groups: Iterable[str]) -> None:
    """Refuse a plan whose jobs are not those that run, or whose groups are not all there.

    Raises
    ------
    JobError
        With the difference.
    """
    found = [
        *_difference("jobs", _jobs_of(plan), set(jobs)),
        *_missing(_groups_of(plan) - set(groups), set(groups)),
    ]
    if found:
        raise JobError(
            f"the plan is not for this cluster: {'; '.join(found)}. Plan for the jobs and groups "
            "that are there; nothing was changed"
        )


def _jobs_of(plan: solver.Plan | SeatPlan) -> set[str]:
    if isinstance(plan, SeatPlan):
        return {seat.job for seat in plan.seats}
    return set(plan.placement)


def _groups_of(plan: solver.Plan | SeatPlan) -> set[str]:
    if isinstance(plan, SeatPlan):
        return set(plan.groups)
    return {*plan.placement.values(), *(timeline.group for timeline in plan.timelines)}


def _difference(what: str, planned: set[str], there: set[str]) -> Iterator[str]:
    if planned - there:
        yield f"{what} only in the plan: {', '.join(sorted(planned - there))}"
    if there - planned:
        yield f"{what} only in the cluster: {', '.join(sorted(there - planned))}"


def _missing(groups: set[str], there: set[str]) -> Iterator[str]:
    if groups:
        yield (
            f"groups that are not there or drain: {', '.join(sorted(groups))} (there: "
            f"{', '.join(sorted(there)) or 'none'})"
        )


def proposal_of(plan: solver.Plan | SeatPlan, request: PlanRequest) -> Proposal:
    """The plan with the times of the cluster, verified.

    Parameters
    ----------
    plan
        Placement and orders, or seats and a rule; its times are those of whoever made it.
    request
        The cluster as measured.

    Raises
    ------
    JobError
        A job was not measured yet, its ops are others, or a requirement would break.
    """
    known = {job.name for job in request.jobs}
    unknown = sorted(_jobs_of(plan) - known)
    if unknown:
        raise JobError(
            f"nothing is known yet of how long the functions of {', '.join(unknown)} take; wait "
            "for an iteration, or give the jobs hints_s"
        )
    # The plan decides the groups; a request has each job where it is.
    if isinstance(plan, SeatPlan):
        return _of_seats(plan, replace(request, jobs=seated(plan, request.jobs)))
    return _of_orders(plan, replace(request, jobs=_placed(plan, request.jobs)))


def _of_seats(plan: SeatPlan, request: PlanRequest) -> Proposal:
    _check(request.jobs, request.groups)
    dispatch = ruled(plan)
    periods_s, factors = pace(request.jobs, dispatch)
    return Proposal(
        request=request,
        status=APPLIED,
        seconds=0.0,
        dispatch=dispatch,
        is_verified=True,
        note=rule_note(dispatch.rules),
        periods_s=periods_s,
        factors=factors,
    )


def _of_orders(plan: solver.Plan, request: PlanRequest) -> Proposal:
    _check(request.jobs, request.groups)
    try:
        problem = build_problem(request.jobs, request.groups)
        retimed = retime(problem, plan)
    except solver.SolverError as error:
        raise JobError(f"the plan does not fit the jobs that run: {error}") from error
    found = solver.verify(problem, retimed)
    if not found.is_valid:
        raise JobError(
            "the plan does not hold with the lengths measured here: "
            f"{'; '.join(found.violations)}. Nothing was changed"
        )
    return Proposal(
        request=request,
        status=APPLIED,
        seconds=0.0,
        dispatch=dispatch_plan(problem, retimed),
        problem=problem,
        plan=retimed,
        is_verified=True,
    )


def _placed(plan: solver.Plan, jobs: Iterable[EstimatedJob]) -> tuple[EstimatedJob, ...]:
    """Jobs on the groups that serve their ops in a plan."""
    places: dict[str, dict[str, str]] = {}
    for timeline in plan.timelines:
        for timing in timeline.timings:
            # One that holds several groups runs where its job samples, and at home.
            if model_and_phase(timing.op)[1] != Phase.SYNC:
                places.setdefault(timing.job, {})[timing.op] = timeline.group
    return tuple(
        replace(
            entry,
            placement=_placement(entry, plan.placement[entry.name], places.get(entry.name, {})),
        )
        for entry in jobs
    )


def _placement(entry: EstimatedJob, home: str, places: Mapping[str, str]) -> Placement:
    """Where a job is whose ops are served at these places; as it is now, if it is there already."""
    now = entry.placement
    if home == now.home and all(now.group_of_op(op) == group for op, group in places.items()):
        return now
    found: dict[tuple[str, str], str] = {}
    for op, group in places.items():
        model, phase = model_and_phase(op)
        if phase not in PINNABLE and group != home:
            raise JobError(
                f"the plan places job {entry.name!r} on {home!r} and serves {op} on {group!r}; a "
                "job is trained where it is placed: nothing was changed"
            )
        if found.setdefault((model, phase), group) != group:
            raise JobError(
                f"the plan serves {model}.{phase} of job {entry.name!r} on {group!r} and on "
                f"{found[model, phase]!r}; one group serves all of it: nothing was changed"
            )
    return Placement.of_models(home, found)


def _check(jobs: Sequence[EstimatedJob], groups: Iterable[GroupFacts]) -> None:
    """Refuse a placement that the jobs do not want, or the groups cannot hold.

    Raises
    ------
    JobError
        With the reason.
    """
    try:
        check_together(groups, {entry.name: (entry.job, entry.placement) for entry in jobs})
    except JobError as error:
        raise JobError(f"the plan does not hold here: {error}. Nothing was changed") from error
