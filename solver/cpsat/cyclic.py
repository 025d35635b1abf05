"""The shortest cycle in which one group serves each of its jobs once, with proof.

The same for several groups that have jobs in common, and with them one cycle and one timeline.
First the cycle length is minimised; then, among the timelines of that length, the weighted sum
of the jobs' spans (first start to last end and wait), which lets an iteration end early.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from itertools import chain
from math import ceil

from ortools.sat.python import cp_model

from solver.bounds import cycle_floor_ticks, cycle_limit_ticks
from solver.cpsat import constraints
from solver.cpsat.variables import CyclicVariables, OpVariables, add_variables
from solver.plan import Timeline, Timing
from solver.problem import Job

MAX_DETERMINISTIC_S = {"cycle": 60.0, "span": 1.0}
"""Effort per stage in CP-SAT's deterministic seconds, so that the same input gives the same plan
on a slow machine; the span is a nicety and gets little."""


class Stage(StrEnum):
    """What is minimised."""

    CYCLE = "cycle"
    SPAN = "span"


class Ending(StrEnum):
    """How CP-SAT ended a stage."""

    OPTIMAL = "optimal"
    FEASIBLE = "feasible"
    INFEASIBLE = "infeasible"
    UNKNOWN = "unknown"
    INVALID = "invalid"


ENDINGS = {
    cp_model.OPTIMAL: Ending.OPTIMAL,
    cp_model.FEASIBLE: Ending.FEASIBLE,
    cp_model.INFEASIBLE: Ending.INFEASIBLE,
    cp_model.UNKNOWN: Ending.UNKNOWN,
    cp_model.MODEL_INVALID: Ending.INVALID,
}
"""How CP-SAT's own statuses are called here."""


_BOUNDED = {Ending.OPTIMAL, Ending.FEASIBLE, Ending.UNKNOWN}


@dataclass(frozen=True, slots=True)
class Effort:
    """How hard to try."""

    seconds: float
    """Wall time, as far as CP-SAT keeps it."""
    seed: int = 0
    num_workers: int = 1
    """More than one makes plans depend on chance."""
    deterministic_s: float | None = None
    """CP-SAT's own seconds for a choice of columns, the same on every machine; None: no limit."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What one stage found."""

    ending: Ending
    timeline: Timeline | None
    bound_ticks: int
    """No cycle is shorter (stage `cycle`), no weighted span smaller (stage `span`); 0 if nothing
    is proven."""


OnTimeline = Callable[[Timeline], None]


def shortest_cycle(
    group: str,
    jobs: tuple[Job, ...],
    hint: Timeline | None,
    effort: Effort,
    on_timeline: OnTimeline = lambda _: None,
) -> Answer:
    """Minimise the cycle length of the jobs on one group, or on the groups that their ops name.

    `hint` is a valid timeline: nothing longer is looked at. `on_timeline` is told each better
    timeline as it is found.
    """
    floor = cycle_floor_ticks(jobs)
    longest = min(cycle_limit_ticks(jobs), _in_turn_ticks(jobs))
    if hint is not None:
        longest = min(longest, hint.cycle_ticks)
    if floor > longest:
        return Answer(Ending.INFEASIBLE, None, floor)
    model = cp_model.CpModel()
    variables = _build(model, jobs, floor, longest)
    model.minimize(variables.cycle)
    _add_hint(model, variables, hint)
    return _solve(model, group, variables, effort, Stage.CYCLE, on_timeline)


def least_span(
    jobs: tuple[Job, ...],
    timeline: Timeline,
    effort: Effort,
    on_timeline: OnTimeline = lambda _: None,
) -> Answer:
    """Minimise the weighted sum of the jobs' spans at the cycle length of a valid timeline."""
    model = cp_model.CpModel()
    variables = _build(model, jobs, timeline.cycle_ticks, timeline.cycle_ticks)
    spans = [
        loop[0].job.weight * (loop[-1].start + _tail(loop[-1].job) - loop[0].start)
        for loop in variables.ops
    ]
    model.minimize(sum(spans))
    _add_hint(model, variables, timeline)
    return _solve(model, timeline.group, variables, effort, Stage.SPAN, on_timeline)


def _in_turn_ticks(jobs: tuple[Job, ...]) -> int:
    """One whole iteration after the other is a valid cycle; no longer one is worth a look."""
    return sum(op.duration_ticks + op.wait_ticks for job in jobs for op in job.ops) + sum(
        max(op.switch_ticks for op in job.ops) for job in jobs
    )


def _tail(job: Job) -> int:
    return job.ops[-1].duration_ticks + job.ops[-1].wait_ticks


def _build(
    model: cp_model.CpModel, jobs: tuple[Job, ...], shortest: int, longest: int
) -> CyclicVariables:
    variables = add_variables(model, jobs, shortest, longest)
    constraints.add_positions(model, variables)
    constraints.add_anchor(model, variables)
    constraints.add_precedence(model, variables)
    constraints.add_switches(model, variables)
    constraints.add_one_switch_per_job(model, variables)
    constraints.add_exclusivity(model, variables)
    constraints.add_load(model, variables)
    constraints.add_slowdown_limits(model, variables)
    return variables


def _add_hint(model: cp_model.CpModel, variables: CyclicVariables, hint: Timeline | None) -> None:
    """Tell the whole of a valid timeline, turned so that it begins where the model's does."""
    if hint is None:
        return
    cycle = hint.cycle_ticks
    model.add_hint(variables.cycle, cycle)
    leads = _leads(variables, hint)
    at = {(timing.job, timing.op): timing for timing in hint.timings}

    def begin(here: OpVariables) -> int:
        timing = at[here.job.id, here.op.name]
        return timing.start_ticks + cycle * timing.wraps - leads[_key(here)]

    zero = begin(max(variables.ops, key=len)[0])
    anchors = {loop[0].job.id: (begin(loop[0]) - zero) // cycle for loop in variables.ops}
    for here in variables.every:
        begins, anchor, lead = begin(here) - zero, anchors[here.job.id], leads[_key(here)]
        model.add_hint(here.begin, begins % cycle)
        # The first literal follows from the others, and may be another one's negation.
        for count, is_so in here.wraps[1:]:
            model.add_hint(is_so, count == begins // cycle - anchor)
        if here.is_kept is not None and not isinstance(here.lead, int):
            model.add_hint(here.lead, lead)
            model.add_hint(here.is_kept, lead != here.op.switch_ticks)
    for here in chain.from_iterable(variables.ops):
        start = begin(here) - zero + leads[_key(here)]
        model.add_hint(here.start, start - anchors[here.job.id] * cycle)


def _key(here: OpVariables) -> tuple[str | None, str, str]:
    return here.group, here.job.id, here.op.name


def _leads(variables: CyclicVariables, hint: Timeline) -> dict[tuple[str | None, str, str], int]:
    """Ticks each op occupies each of its groups before it starts."""
    every: dict[tuple[str, str], list[OpVariables]] = {}
    for here in variables.every:
        every.setdefault((here.job.id, here.op.name), []).append(here)
    leads = {}
    last: dict[str | None, tuple[Timing, OpVariables]] = {}
    # Twice round the cycle: what comes before a group's first op is known by the second time.
    for timing in (*hint.timings, *hint.timings):
        for here in every[timing.job, timing.op]:
            before, known = last.get(here.group, (timing, here))
            last[here.group] = timing, here
            if before.job != timing.job or not here.op.switch_ticks:
                leads[_key(here)] = here.op.switch_ticks
            else:
                end = before.start_ticks + known.op.duration_ticks
                leads[_key(here)] = (timing.start_ticks - end) % hint.cycle_ticks
    return leads


class _Listener(cp_model.CpSolverSolutionCallback):  # type: ignore[misc]
    def __init__(self, told: Callable[[Callable[[cp_model.IntVar], int]], None]) -> None:
        super().__init__()
        self._told = told

    def on_solution_callback(self) -> None:
        self._told(self.value)


def _solve(
    model: cp_model.CpModel,
    group: str,
    variables: CyclicVariables,
    effort: Effort,
    stage: Stage,
    on_timeline: OnTimeline,
) -> Answer:
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = max(effort.seconds, 0.01)
    solver.parameters.max_deterministic_time = MAX_DETERMINISTIC_S[stage]
    solver.parameters.num_workers = effort.num_workers
    solver.parameters.random_seed = effort.seed
    status = solver.solve(
        model,
        _Listener(lambda value: on_timeline(_read(group, variables, value))),
    )
    ending = ENDINGS[status]
    # CP-SAT reports its integer bound as a float, which may fall short by rounding.
    bound = ceil(solver.best_objective_bound - 1e-6) if ending in _BOUNDED else 0
    if ending not in {Ending.OPTIMAL, Ending.FEASIBLE}:
        return Answer(ending, None, bound)
    return Answer(ending, _read(group, variables, solver.value), bound)


def _read(
    group: str, variables: CyclicVariables, value: Callable[[cp_model.IntVar], int]
) -> Timeline:
    cycle = value(variables.cycle)
    timings = []
    for loop in variables.ops:
        anchor = value(loop[0].start) // cycle
        for here in loop:
            start = value(here.start)
            timings.append(
                Timing(here.job.id, here.op.name, start % cycle, start // cycle - anchor)
            )
    return Timeline(group, cycle, tuple(timings))
