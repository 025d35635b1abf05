"""Decision variables of the cyclic timeline of one group."""

from __future__ import annotations

from dataclasses import dataclass

from ortools.sat.python import cp_model

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
    wraps: cp_model.IntVar | int
    """Cycles since the one in which the job's first op begins: 0 or 1."""
    lead: cp_model.IntVar | int
    """Ticks between `begin` and the start of the op."""
    is_kept: cp_model.IntVar | None
    """Whether the group stays with the job since its previous op, which saves the switch; None
    where there is no switch to save."""
    start: cp_model.IntVar
    """Start of the op, counted from the cycle in which the job's first op begins."""


@dataclass(frozen=True, slots=True)
class CyclicVariables:
    """All variables of one timeline."""

    cycle: cp_model.IntVar
    horizon_ticks: int
    """Longest cycle considered."""
    ops: tuple[tuple[OpVariables, ...], ...]
    """Per job its ops, in the order of its loop."""


def add_variables(
    model: cp_model.CpModel, jobs: tuple[Job, ...], shortest_ticks: int, longest_ticks: int
) -> CyclicVariables:
    """Variables for a cycle between two lengths."""
    cycle = model.new_int_var(shortest_ticks, longest_ticks, "cycle")
    loops = []
    for job in jobs:
        loop = []
        for index, op in enumerate(job.ops):
            name = f"{job.id}/{op.name}"
            begin = model.new_int_var(0, longest_ticks - 1, f"begin {name}")
            start = model.new_int_var(0, 3 * longest_ticks, f"start {name}")
            wraps = 0 if index == 0 else model.new_bool_var(f"wraps {name}")
            if op.switch_ticks:
                lead = model.new_int_var(0, longest_ticks, f"lead {name}")
                kept = model.new_bool_var(f"kept {name}")
                loop.append(OpVariables(job, op, begin, wraps, lead, kept, start))
            else:
                loop.append(OpVariables(job, op, begin, wraps, 0, None, start))
        loops.append(tuple(loop))
    return CyclicVariables(cycle, longest_ticks, tuple(loops))
