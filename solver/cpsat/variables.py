"""Decision variables of a cyclic timeline: of one group, or of several with one cycle."""

from __future__ import annotations

from dataclasses import dataclass

from ortools.sat.python import cp_model

from solver.linked import places_of
from solver.problem import Job, Op


@dataclass(frozen=True, slots=True)
class OpVariables:
    """One op of one job; times in ticks.

    The op occupies the group from `begin` to its end: first the lead (the switch to its job, or
    the time since the job's previous op if the group is kept for it), then the op itself.
    """

    job: Job
    op: Op
    begin: cp_model.IntVar
    """Start of the occupation within the cycle, 0 ≤ begin < cycle."""
    wraps: tuple[cp_model.LiteralT, ...]
    """Whether it begins no cycle after the one in which the job's first op begins, or one, …;
    exactly one of them holds. Empty: none after."""
    lead: cp_model.IntVar | int
    """Ticks between `begin` and the start of the op."""
    is_kept: cp_model.IntVar | None
    """Whether the group stays with the job since its previous op, which saves the switch; None
    where there is no switch to save."""
    start: cp_model.IntVar
    """Start of the op, counted from the cycle in which the job's first op begins."""
    group: str | None
    """Group it runs on; None: the only one there is."""


@dataclass(frozen=True, slots=True)
class CyclicVariables:
    """All variables of one timeline."""

    cycle: cp_model.IntVar
    horizon_ticks: int
    """Longest cycle considered."""
    ops: tuple[tuple[OpVariables, ...], ...]
    """Per job its ops, in the order of its loop."""

    @property
    def by_group(self) -> dict[str | None, list[list[OpVariables]]]:
        """Group → the ops on it of each job that has some."""
        found: dict[str | None, list[list[OpVariables]]] = {}
        for loop in self.ops:
            for group in dict.fromkeys(here.group for here in loop):
                found.setdefault(group, []).append([h for h in loop if h.group == group])
        return found


def add_variables(
    model: cp_model.CpModel, jobs: tuple[Job, ...], shortest_ticks: int, longest_ticks: int
) -> CyclicVariables:
    """Variables for a cycle between two lengths."""
    cycle = model.new_int_var(shortest_ticks, longest_ticks, "cycle")
    places = places_of(jobs)
    loops = []
    for job in jobs:
        loop = []
        for index, op in enumerate(job.ops):
            name = f"{job.id}/{op.name}"
            begin = model.new_int_var(0, longest_ticks - 1, f"begin {name}")
            start = model.new_int_var(0, (3 + job.staleness) * longest_ticks, f"start {name}")
            wraps = _wraps(model, job, name) if index else ()
            group = places[job.id, op.name]
            if op.switch_ticks:
                lead = model.new_int_var(0, longest_ticks, f"lead {name}")
                kept = model.new_bool_var(f"kept {name}")
                loop.append(OpVariables(job, op, begin, wraps, lead, kept, start, group))
            else:
                loop.append(OpVariables(job, op, begin, wraps, 0, None, start, group))
        loops.append(tuple(loop))
    return CyclicVariables(cycle, longest_ticks, tuple(loops))


def _wraps(model: cp_model.CpModel, job: Job, name: str) -> tuple[cp_model.LiteralT, ...]:
    """Literals of the cycles that may lie between a job's first op and another one."""
    if not job.staleness:
        is_later = model.new_bool_var(f"wraps {name}")
        return ~is_later, is_later
    later = tuple(model.new_bool_var(f"wraps {name} {n}") for n in range(2 + job.staleness))
    model.add_exactly_one(later)
    return later
