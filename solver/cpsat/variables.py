"""Decision variables of a cyclic timeline: of one group, or of several with one cycle."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain

from ortools.sat.python import cp_model

from solver.linked import places_of
from solver.problem import Job, Op


@dataclass(frozen=True, slots=True)
class OpVariables:
    """One op of one job; times in ticks.

    The op occupies the group from `begin` to its end: first the lead (the switch to its job, or
    the time since the job's previous op if the group is kept for it), then the op itself. One that
    holds several groups occupies each from a begin of its own; the start is the same.
    """

    job: Job
    op: Op
    begin: cp_model.IntVar
    """Start of the occupation within the cycle, 0 ≤ begin < cycle."""
    wraps: tuple[tuple[int, cp_model.LiteralT], ...]
    """Cycles after the one in which the job's first op begins on its first group, and whether it
    begins so many after; exactly one of them holds. Empty: none after."""
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
    """Per job its ops, in the order of its loop, on the first group of each."""
    others: tuple[OpVariables, ...]
    """The ops that hold several groups, on the others of these."""

    @property
    def every(self) -> Iterator[OpVariables]:
        """All ops on all their groups."""
        return chain(chain.from_iterable(self.ops), self.others)

    @property
    def by_group(self) -> dict[str | None, list[list[OpVariables]]]:
        """Group → the ops on it of each job that has some, in the order of its loop."""
        found: dict[str | None, dict[str, list[OpVariables]]] = {}
        for here in self.every:
            found.setdefault(here.group, {}).setdefault(here.job.id, []).append(here)
        return {
            group: [sorted(loop, key=_place_in_loop) for loop in jobs.values()]
            for group, jobs in found.items()
        }


def add_variables(
    model: cp_model.CpModel, jobs: tuple[Job, ...], shortest_ticks: int, longest_ticks: int
) -> CyclicVariables:
    """Variables for a cycle between two lengths."""
    cycle = model.new_int_var(shortest_ticks, longest_ticks, "cycle")
    places = places_of(jobs)
    loops, others = [], []
    for job in jobs:
        loop = []
        for index, op in enumerate(job.ops):
            name = f"{job.id}/{op.name}"
            # CP-SAT searches in this order; with starts first it overran its own seconds eightfold.
            begin = model.new_int_var(0, longest_ticks - 1, f"begin {name}")
            start = model.new_int_var(0, (3 + job.staleness) * longest_ticks, f"start {name}")
            wraps = _wraps(model, job, name) if index else ()
            first, *more = places[job.id, op.name]
            loop.append(_occupation(model, job, op, wraps, begin, start, first, longest_ticks))
            for group in more:
                there = f"{name} on {group}"
                wraps = _any_wraps(model, job, there)
                begin = model.new_int_var(0, longest_ticks - 1, f"begin {there}")
                others.append(
                    _occupation(model, job, op, wraps, begin, start, group, longest_ticks)
                )
        loops.append(tuple(loop))
    return CyclicVariables(cycle, longest_ticks, tuple(loops), tuple(others))


def _occupation(
    model: cp_model.CpModel,
    job: Job,
    op: Op,
    wraps: tuple[tuple[int, cp_model.LiteralT], ...],
    begin: cp_model.IntVar,
    start: cp_model.IntVar,
    group: str | None,
    longest_ticks: int,
) -> OpVariables:
    name = f"{job.id}/{op.name}"
    if not op.switch_ticks:
        return OpVariables(job, op, begin, wraps, 0, None, start, group)
    lead = model.new_int_var(0, longest_ticks, f"lead {name}")
    kept = model.new_bool_var(f"kept {name}")
    return OpVariables(job, op, begin, wraps, lead, kept, start, group)


def _wraps(
    model: cp_model.CpModel, job: Job, name: str
) -> tuple[tuple[int, cp_model.LiteralT], ...]:
    """Literals of the cycles that may lie between a job's first op and another one."""
    if not job.staleness:
        is_later = model.new_bool_var(f"wraps {name}")
        return (0, ~is_later), (1, is_later)
    later = [(n, model.new_bool_var(f"wraps {name} {n}")) for n in range(2 + job.staleness)]
    model.add_exactly_one(is_so for _, is_so in later)
    return tuple(later)


def _any_wraps(
    model: cp_model.CpModel, job: Job, name: str
) -> tuple[tuple[int, cp_model.LiteralT], ...]:
    """The same where another lead may reach back over the begin of a cycle, or less far."""
    counts = range(-1, 3 + job.staleness)
    found = [(n, model.new_bool_var(f"wraps {name} {n}")) for n in counts]
    model.add_exactly_one(is_so for _, is_so in found)
    return tuple(found)


def _place_in_loop(here: OpVariables) -> int:
    return here.job.ops.index(here.op)
