"""One solve: a frozen request in, a frozen proposal out; blocking, so that a process runs it."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

import solver
from plexrl.planning.arranging import Rearrangement, rearrange, serial_s, simulated
from plexrl.planning.facts import GroupFacts, Warm
from plexrl.planning.problems import (
    EstimatedJob,
    build_problem,
    dispatch_plan,
    linked_circles,
)
from plexrl.planning.seated import kept_rules, ruled_circles
from solver.dispatch.events import TICKS_PER_S, DispatchPlan
from solver.dispatch.shortest import ShortestFirst

STATE_BYTES_S = 500e6
"""Bytes a second between host memory and the store until it was measured: a common disk."""


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """Everything a solve needs, frozen at one moment."""

    number: int
    """Counts the requests of a planner from 1."""
    reason: str
    """Why a plan is wanted."""
    now_s: float
    """Seconds on the cluster's clock."""
    jobs: tuple[EstimatedJob, ...]
    groups: tuple[GroupFacts, ...]
    budget_s: float
    """Seconds the solve may take."""
    seed: int
    previous: solver.Plan | None = None
    """The plan in force."""
    open_groups: frozenset[str] = frozenset()
    """Groups that take jobs."""
    left: Mapping[str, int] = field(default_factory=dict)
    """Job → iterations it still has to run, of those measured well enough to be moved."""
    bytes_per_s: float = STATE_BYTES_S
    """How fast states move between host memory and the store."""
    warm: Warm = field(default_factory=dict)
    """Which groups have which engines."""
    rules: Mapping[str, ShortestFirst] = field(default_factory=dict)
    """Group → the rule in force there, as a plan that was applied says."""

    @property
    def to_beat(self) -> solver.Plan | None:
        """The plan in force, if it serves exactly these ops on these groups.

        With hundreds of jobs it takes a tenth of a second to tell: none of the scheduler's.
        """
        if self.previous is None:
            return None
        served = {
            (timeline.group, timing.job, timing.op)
            for timeline in self.previous.timelines
            for timing in timeline.timings
        }
        wanted = {
            (group, entry.name, estimate.op)
            for entry in self.jobs
            for estimate in entry.ops
            for group in entry.placement.lease_groups(estimate.op, is_setup=False)
        }
        return self.previous if served == wanted else None


@dataclass(frozen=True, slots=True)
class Proposal:
    """What a solve came to."""

    request: PlanRequest
    status: str
    """Status of the solver (`solver.Status`; ``infeasible`` with a plan: slowdown limits cannot
    hold, the plan ignores them), or ``greedy`` if the greedy plan serves unproven, or ``none`` if
    there is no plan and ops are served as they come."""
    seconds: float
    """Seconds the solve took."""
    dispatch: DispatchPlan
    """The plan as the arbiter takes it."""
    problem: solver.Problem | None = None
    """What was solved: without slowdown limits if they cannot hold."""
    plan: solver.Plan | None = None
    bound_ticks: int | None = None
    """No plan has a smaller objective, within `bound_class`."""
    bound_class: str = ""
    is_verified: bool = False
    """Whether the independent check passed the plan."""
    note: str = ""
    """What cannot hold, or why the solver's plan does not serve; plain words."""
    periods_s: Mapping[str, float] = field(default_factory=dict)
    """Job over several groups, or beside such a job → seconds that a simulation of the order in
    force, if its groups have one, or of their rule says for an iteration."""
    factors: Mapping[str, float] = field(default_factory=dict)
    """Job → predicted slowdown, where a simulation says it and no plan."""
    rearrangement: Rearrangement | None = None
    """A job that would do better on other groups; the plan is for where it is now."""

    @property
    def objective_s(self) -> float | None:
        """Sum of the groups' cycle lengths in seconds."""
        return None if self.plan is None else self.plan.objective_ticks / TICKS_PER_S

    @property
    def cycles_s(self) -> tuple[tuple[str, float], ...]:
        """Group → predicted seconds of its cycle."""
        timelines = () if self.plan is None else self.plan.timelines
        return tuple((entry.group, entry.cycle_ticks / TICKS_PER_S) for entry in timelines)

    @property
    def slowdowns(self) -> tuple[tuple[str, float], ...]:
        """Job → predicted iteration time shared ÷ alone."""
        if self.plan is None:
            return tuple(self.factors.items())
        return tuple((job, n / 1000) for job, n in self.plan.slowdowns_permille.items())

    @property
    def bound_s(self) -> float | None:
        """The bound in seconds."""
        return None if self.bound_ticks is None else self.bound_ticks / TICKS_PER_S


def solve(request: PlanRequest) -> Proposal:
    """Plan the order of jobs where they are, and see whether one of them should move.

    Blocks for the budget at most, never raises for what it is given.
    """
    proposal = _rehearsed(_ruled(_ordered(request), request), request)
    if len(request.groups) < 2:
        return proposal
    spots = [entry.spot for entry in request.jobs]
    groups = [group for group in request.groups if group.name in request.open_groups]
    return replace(
        proposal,
        rearrangement=rearrange(spots, groups, request.left, request.bytes_per_s, request.warm),
    )


def solve_without_solver(request: PlanRequest, why: str) -> Proposal:
    """Order the jobs as the plan in force has it, or greedily; moves none of them.

    Parameters
    ----------
    request
        What to plan.
    why
        What kept the solver from it, for the note.
    """
    ordered = _ordered(replace(request, budget_s=0.0))
    proposal = _rehearsed(_ruled(ordered, request), request)
    note = "; ".join(text for text in (why, proposal.note) if text)
    return replace(proposal, request=request, note=note)


def _ruled(proposal: Proposal, request: PlanRequest) -> Proposal:
    """The proposal with the rules that an applied plan put into force, where they still hold."""
    rules = kept_rules(request.rules, request.jobs)
    if not rules:
        return proposal
    orders = {g: order for g, order in proposal.dispatch.orders.items() if g not in rules}
    dispatch = replace(proposal.dispatch, orders=orders, rules=rules)
    periods: dict[str, float] = {}
    for jobs in ruled_circles(request.jobs, rules):
        served = simulated([entry.spot for entry in jobs], dispatch) if jobs else None
        periods |= {} if served is None else served.periods_s
    note = "; ".join(text for text in (proposal.note, rule_note(rules)) if text)
    return replace(proposal, dispatch=dispatch, periods_s=periods, note=note)


def rule_note(groups: Iterable[str]) -> str:
    """Where the rule of an applied plan is in force, in plain words."""
    return f"shortest first on {', '.join(sorted(groups))}, as the applied plan says"


def _rehearsed(proposal: Proposal, request: PlanRequest) -> Proposal:
    """The proposal with what a simulation of jobs over several groups, and beside them, promises.

    Such jobs rarely fit one cycle: where serving the first ready gets more done than the order of
    the plan, a set of groups that they link has no order.
    """
    orders = dict(proposal.dispatch.orders)
    periods = dict(proposal.periods_s)
    notes = []
    for groups, jobs in linked_circles(request.jobs):
        if groups & proposal.dispatch.rules.keys():
            continue
        spots = [entry.spot for entry in jobs]
        served = simulated(spots)
        planned = simulated(spots, proposal.dispatch) if groups & orders.keys() else None
        if planned is not None and (served is None or planned.rate >= served.rate):
            periods |= planned.periods_s
            continue
        for group in groups & orders.keys():
            del orders[group]
        if served is not None:
            periods |= served.periods_s
        if planned is not None and served is not None:
            notes.append(
                f"first ready, first served on {', '.join(sorted(groups))}: that gets "
                f"{100 * (served.rate / planned.rate - 1):.1f} % more done than the order"
            )
    return replace(
        proposal,
        dispatch=replace(proposal.dispatch, orders=orders),
        periods_s=periods,
        note="; ".join(text for text in (proposal.note, *notes) if text),
    )


def _ordered(request: PlanRequest) -> Proposal:
    """Order the jobs of a request.

    The solver runs in a child process that is killed at its deadline. Its plan is checked by
    `solver.verify`. If slowdown limits cannot hold, the jobs are planned without them and the note
    says which cannot.
    """
    began = time.monotonic()
    try:
        problem = build_problem(request.jobs, request.groups)
        result = _plan(problem, request, request.budget_s)
        note = result.reason
        if result.plan is None:
            problem = problem.without_limits()
            left_s = max(request.budget_s - (time.monotonic() - began), 0.0)
            relaxed = _plan(problem, request, left_s)
            result = replace(
                relaxed, status=result.status, reason=f"{note}; planned without slowdown limits"
            )
            note = result.reason
    except solver.SolverError as error:
        return Proposal(
            request=request,
            status="none",
            seconds=time.monotonic() - began,
            dispatch=DispatchPlan(),
            note=f"no plan: {error}",
        )
    return _proposal(request, problem, result, note, time.monotonic() - began)


def without(plan: DispatchPlan, jobs: Mapping[str, object]) -> DispatchPlan:
    """The orders with only the jobs that are still there."""
    return replace(
        plan,
        orders={
            group: tuple(slot for slot in order if slot.job in jobs)
            for group, order in plan.orders.items()
        },
        alone_ticks={job: ticks for job, ticks in plan.alone_ticks.items() if job in jobs},
    )


def busy_shares(jobs: Iterable[EstimatedJob]) -> dict[str, float]:
    """Group → share of time that the jobs on it hold it when each is alone, added up."""
    shares: dict[str, float] = {}
    for entry in jobs:
        for estimate in entry.ops:
            for group in entry.placement.lease_groups(estimate.op, is_setup=False):
                shares[group] = shares.get(group, 0.0) + estimate.busy_s / serial_s(entry.ops)
    return shares


def _plan(problem: solver.Problem, request: PlanRequest, budget_s: float) -> solver.Result:
    return solver.plan(
        problem,
        previous=request.to_beat,
        budget_s=budget_s,
        seed=request.seed,
    )


def _proposal(
    request: PlanRequest,
    problem: solver.Problem,
    result: solver.Result,
    note: str,
    seconds: float,
) -> Proposal:
    plan = result.plan
    is_verified = plan is not None and solver.verify(problem, plan).is_valid
    if plan is not None and not is_verified:
        plan, note = None, f"{note}; the plan failed the independent check and does not serve"
    is_greedy = result.source is solver.Source.GREEDY and result.status not in {
        solver.Status.OPTIMAL,
        solver.Status.INFEASIBLE,
    }
    status = "none" if plan is None else "greedy" if is_greedy else str(result.status)
    return Proposal(
        request=request,
        status=status,
        seconds=seconds,
        dispatch=DispatchPlan() if plan is None else dispatch_plan(problem, plan),
        problem=problem,
        plan=plan,
        bound_ticks=result.bound_ticks,
        bound_class="" if result.bound_class is None else str(result.bound_class),
        is_verified=is_verified,
        note=note.strip("; "),
    )
