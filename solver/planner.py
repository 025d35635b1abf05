"""From a problem to a verified plan: greedy at once, then CP-SAT per group, then proof.

There is a plan from the first milliseconds on. The solver only ever improves it, and nothing of
the solver's is believed before the independent check has passed it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from solver.bounds import Bound, BoundClass, Proof, cycle_floor_ticks, simple_bounds
from solver.cpsat import guard
from solver.cpsat.guard import ChildEnd
from solver.cpsat.messages import Task
from solver.errors import PlanError
from solver.explain import explain
from solver.placement.greedy import Placed, greedy_plan, timelines_of
from solver.placement.search import Search, search_placement
from solver.plan import Plan, Timeline
from solver.problem import Problem
from solver.result import Incumbent, Result, Source, Status
from solver.timeline import plan_of
from solver.verify import verify

MAX_SEARCHED_JOBS = 13
"""Up to this many jobs every placement is considered; above, best fit decides."""
MAX_TIMELINE_OPS = 200
"""Groups with more ops keep their greedy timeline: the exact model would not end in time."""
LEAST_SOLVE_S = 0.5
"""With less of the budget left the solver is not started: loading it takes this long."""

OnIncumbent = Callable[[Incumbent], None]


@dataclass(slots=True)
class _Run:
    """One call of `plan` under way."""

    problem: Problem
    began: float
    deadline: float
    on_incumbent: OnIncumbent
    best: Plan | None = None
    source: Source | None = None
    incumbents: list[Incumbent] = field(default_factory=list)
    bounds: list[Bound] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)

    def offer(self, plan: Plan, source: Source) -> bool:
        """Take a plan if it passes the check and is no dearer than the best; say if it passed."""
        verification = verify(self.problem, plan)
        if not verification.is_valid:
            return False
        if self.best is None or plan.objective_ticks <= self.best.objective_ticks:
            if self.best is None or plan.objective_ticks < self.best.objective_ticks:
                self._note(plan.objective_ticks, source)
            self.best, self.source = plan, source
        return True

    def _note(self, objective_ticks: int, source: Source) -> None:
        incumbent = Incumbent(time.monotonic() - self.began, objective_ticks, source)
        self.incumbents.append(incumbent)
        self.on_incumbent(incumbent)

    def end(self, status: Status) -> Result:
        """The result; a bound that a checked plan refutes is a fault of the solver and dropped."""
        best = self.best
        bounds = [
            bound for bound in self.bounds if best is None or bound.ticks <= best.objective_ticks
        ]
        if len(bounds) < len(self.bounds):
            self.reasons.append("a bound above the objective of a checked plan was dropped")
        result = Result(
            status=status,
            seconds=time.monotonic() - self.began,
            plan=best,
            source=self.source,
            bounds=tuple(bounds),
            reason="; ".join(self.reasons),
            incumbents=tuple(self.incumbents),
        )
        is_proven = best is not None and result.bound_ticks == best.objective_ticks
        return replace(result, status=Status.OPTIMAL) if is_proven else result


def greedy(problem: Problem) -> Plan:
    """A verified plan in milliseconds, without any solver.

    Raises
    ------
    PlanError
        None was found; the message says why, as far as that is known.
    """
    result = plan(problem, budget_s=0.0)
    if result.plan is None:
        raise PlanError(result.reason)
    return result.plan


def plan(
    problem: Problem,
    *,
    previous: Plan | None = None,
    budget_s: float = 5.0,
    seed: int = 0,
    memory_bytes: int = guard.MEMORY_BYTES,
    command: Sequence[str] = guard.CHILD,
    on_incumbent: OnIncumbent = lambda _incumbent: None,
) -> Result:
    """Plan who shares which groups, in what order, with proof.

    Parameters
    ----------
    problem
        What to plan.
    previous
        The plan in force: jobs stay where they are unless moving is cheaper, and if it still
        holds it is the one to beat.
    budget_s
        Seconds the call may take; 0 asks for the greedy plan alone.
    seed
        For CP-SAT; the same input and seed give the same plan unless the budget cuts the solver
        short.
    memory_bytes
        Cap on the address space of the solver's process.
    command
        Command of the solver's process.
    on_incumbent
        Told each better plan met on the way.

    Returns
    -------
    Result
        Its plan, if there is one, has passed `solver.verify`.
    """
    began = time.monotonic()
    problem = _with_current(problem, previous)
    run = _Run(problem, began, began + budget_s, on_incumbent)
    search = _place(run, previous)
    if run.best is None and search is not None and search.placed is None and search.is_complete:
        run.reasons.append(explain(problem) or "no placement keeps every requirement")
        return run.end(Status.INFEASIBLE)
    run.bounds.extend(simple_bounds(problem))
    if search is not None and search.is_complete and search.floor_ticks is not None:
        run.bounds.append(Bound(search.floor_ticks, BoundClass.COMMON_CYCLE, Proof.ENUMERATION))
    placed = _to_improve(run, search)
    if placed is None:
        run.reasons.append(
            "no placement was found that keeps every requirement, and none was excluded; "
            "add groups or relax slowdown limits"
        )
        return run.end(Status.UNKNOWN)
    return _improve(run, placed, seed, memory_bytes, command)


def _with_current(problem: Problem, previous: Plan | None) -> Problem:
    if previous is None or problem.current is not None:
        return problem
    jobs = {job.id for job in problem.jobs}
    groups = {group.id for group in problem.groups}
    current = {
        job: group for job, group in previous.placement.items() if job in jobs and group in groups
    }
    return replace(problem, current=current)


def _place(run: _Run, previous: Plan | None) -> Search | None:
    """Offer every plan that needs no solver; the search over placements, if it was affordable."""
    if previous is not None:
        try:
            run.offer(plan_of(run.problem, previous.timelines), Source.PREVIOUS)
        except (PlanError, KeyError):
            run.reasons.append("the previous plan does not fit the problem any more")
    found = greedy_plan(run.problem)
    if found is not None and (
        run.best is None or found.objective_ticks < run.best.objective_ticks
    ):
        run.offer(found, Source.GREEDY)
    if len(run.problem.jobs) > MAX_SEARCHED_JOBS and len(run.problem.groups) > 1:
        return None
    search = search_placement(run.problem)
    if search.placed is not None and _is_cheaper(search, run.best):
        run.offer(plan_of(run.problem, timelines_of(search.placed)), Source.GREEDY)
    return search


def _is_cheaper(search: Search, best: Plan | None) -> bool:
    return search.floor_ticks is not None and (
        best is None or search.floor_ticks < best.objective_ticks
    )


def _to_improve(run: _Run, search: Search | None) -> Placed | None:
    """The placement worth the solver's time: the one that may become cheapest."""
    if search is not None and search.placed is not None and _is_cheaper(search, run.best):
        return search.placed
    if run.best is None:
        return None
    return {
        timeline.group: tuple(
            job
            for job in run.problem.jobs
            if run.best.placement[job.id] == timeline.group
        )
        for timeline in run.best.timelines
    }


def _improve(
    run: _Run, placed: Placed, seed: int, memory_bytes: int, command: Sequence[str]
) -> Result:
    hints = _hints(run, placed)
    tasks = {
        group: Task(Problem((run.problem.group(group),), _unbound(placed, group)), hints.get(group))
        for group, jobs in placed.items()
        if len(jobs) > 1 and sum(len(job.ops) for job in jobs) <= MAX_TIMELINE_OPS
    }
    budget_s = run.deadline - time.monotonic()
    if not tasks or budget_s < LEAST_SOLVE_S:
        run.bounds.extend(_timeline_bound(run.problem, placed, {}))
        return run.end(Status.OUT_OF_TIME if tasks else Status.FEASIBLE)
    report = guard.solve(
        list(tasks.values()),
        budget_s=budget_s,
        seed=seed,
        memory_bytes=memory_bytes,
        command=command,
    )
    names = list(tasks)
    found = {names[index]: timeline for index, timeline in report.timelines.items()}
    _adopt(run, placed, hints, found)
    endings = {names[index]: proved for index, proved in report.proved.items()}
    known = {
        group: proved.bound_ticks
        for group, proved in endings.items()
        if proved.ending in {"optimal", "feasible", "unknown"}
    }
    run.bounds.extend(_timeline_bound(run.problem, placed, known))
    if report.end is not ChildEnd.FINISHED:
        run.reasons.append(report.detail)
    excluded = [group for group, proved in endings.items() if proved.ending == "infeasible"]
    return run.end(_status(run, report.end, excluded, endings, tasks))
