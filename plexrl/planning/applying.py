"""A plan made elsewhere, checked against the cluster it shall run on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

import solver
from plexrl.core.placement import Placement
from plexrl.errors import JobError
from plexrl.planning.problems import build_problem, dispatch_plan
from plexrl.planning.proposals import PlanRequest, Proposal
from solver.retime import retime

APPLIED = "applied"
"""Status of a plan that an operator brought."""


def read_plan(text: str) -> solver.Plan:
    """A plan from its JSON form.

    Raises
    ------
    JobError
        It is none.
    """
    try:
        return solver.Plan.from_json(text)
    except solver.PlanError as error:
        raise JobError(f"{error}; give what 'plexrl plan --output' wrote") from error


def check_names(plan: solver.Plan, jobs: Iterable[str], groups: Iterable[str]) -> None:
    """Refuse a plan whose jobs are not those that run, or whose groups are not all there.

    Raises
    ------
    JobError
        With the difference.
    """
    found = [
        *_difference("jobs", set(plan.placement), set(jobs)),
        *_missing(set(plan.placement.values()) - set(groups), set(groups)),
    ]
    if found:
        raise JobError(
            f"the plan is not for this cluster: {'; '.join(found)}. Plan for the jobs and groups "
            "that are there; nothing was changed"
        )


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


def proposal_of(plan: solver.Plan, request: PlanRequest) -> Proposal:
    """The plan with the times of the cluster, verified.

    Parameters
    ----------
    plan
        Placement and orders; its times are those of whoever made it.
    request
        The cluster as measured.

    Raises
    ------
    JobError
        A job was not measured yet, its ops are others, or a requirement would break.
    """
    known = {job.name for job in request.jobs}
    unknown = sorted(set(plan.placement) - known)
    if unknown:
        raise JobError(
            f"nothing is known yet of how long the functions of {', '.join(unknown)} take; wait "
            "for an iteration, or give the jobs hints_s"
        )
    apart = sorted(entry.name for entry in request.jobs if entry.job.arrangement.is_split)
    if apart:
        raise JobError(
            f"{', '.join(apart)} sample on another group than they train on, by their arrangement; "
            "a plan has each job on one group: nothing was changed"
        )
    # The plan decides the groups; a request has each job where it is.
    jobs = tuple(
        replace(entry, placement=Placement(plan.placement[entry.name])) for entry in request.jobs
    )
    try:
        problem = build_problem(jobs, request.groups)
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
        request=replace(request, jobs=jobs),
        status=APPLIED,
        seconds=0.0,
        dispatch=dispatch_plan(problem, retimed),
        problem=problem,
        plan=retimed,
        is_verified=True,
    )
