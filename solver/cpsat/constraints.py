"""The rules of a cyclic timeline, of one group or of several that have jobs in common.

One function each. With a cycle of length C, an op that begins at u within the cycle, w cycles
after its job's first, starts at a = u + lead + C·w. Two copies of every occupation, C apart, in
one NoOverlap say that nothing overlaps round the wrap.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, pairwise

from ortools.sat.python import cp_model

from solver.cpsat.variables import CyclicVariables, OpVariables


def add_positions(model: cp_model.CpModel, variables: CyclicVariables) -> None:
    """Every occupation begins within the cycle; starts follow from begin, lead and wraps."""
    for here in variables.every:
        model.add(here.begin < variables.cycle)
        base = here.begin + here.lead
        if not here.wraps:
            model.add(here.start == base)
        for count, is_so in here.wraps:
            model.add(here.start == base + count * variables.cycle).only_enforce_if(is_so)


def add_anchor(model: cp_model.CpModel, variables: CyclicVariables) -> None:
    """The cycle is counted from the longest loop's first op: turning a timeline changes nothing."""
    model.add(max(variables.ops, key=len)[0].begin == 0)


def add_precedence(model: cp_model.CpModel, variables: CyclicVariables) -> None:
    """Each op starts after the one before it and its wait; the first one a cycle after the last.

    Ops that run ahead are tied to the end of an earlier pass, and each part to its own.
    """
    for loop in variables.ops:
        for before, after in pairwise(loop):
            model.add(after.start >= _ready(before))
        job = loop[0].job
        cycles = 1 + job.staleness
        model.add(loop[0].start + cycles * variables.cycle >= _ready(loop[-1]))
        if job.ahead_ops:
            rest = loop[job.ahead_ops]
            model.add(loop[0].start + variables.cycle >= _ready(loop[job.ahead_ops - 1]))
            model.add(rest.start + variables.cycle >= _ready(loop[-1]))


def add_switches(model: cp_model.CpModel, variables: CyclicVariables) -> None:
    """An op leads with its switch, unless its group was kept since the job's previous op there.

    Keeping occupies the group for all the time between the two, so no circuit over the ops is
    needed to know who was served last.
    """
    for ops in _per_job_and_group(variables):
        for index, here in enumerate(ops):
            if here.is_kept is None:
                continue
            before = ops[index - 1]
            end = before.start + before.op.duration_ticks
            if index == 0:
                end -= variables.cycle
            model.add(here.lead == here.op.switch_ticks).only_enforce_if(~here.is_kept)
            model.add(here.lead == here.start - end).only_enforce_if(here.is_kept)


def add_one_switch_per_job(model: cp_model.CpModel, variables: CyclicVariables) -> None:
    """Where jobs share, no job keeps the group all round (implied; makes the load bound tight)."""
    for jobs in variables.by_group.values():
        for ops in jobs if len(jobs) > 1 else ():
            kept = [here.is_kept for here in ops if here.is_kept is not None]
            if len(kept) == len(ops):
                model.add_bool_or([~flag for flag in kept])


def add_exclusivity(model: cp_model.CpModel, variables: CyclicVariables) -> None:
    """A group serves one op at a time, round the wrap too."""
    for jobs in variables.by_group.values():
        intervals: list[cp_model.IntervalVar] = []
        for here in chain.from_iterable(jobs):
            again = model.new_int_var(0, 2 * variables.horizon_ticks, "")
            model.add(again == here.begin + variables.cycle)
            intervals.extend(_interval(model, variables, here, at) for at in (here.begin, again))
        model.add_no_overlap(intervals)


def add_load(model: cp_model.CpModel, variables: CyclicVariables) -> None:
    """The cycle holds all occupations (implied; lets propagation see the load bound)."""
    for jobs in variables.by_group.values():
        occupied = sum(here.op.duration_ticks + here.lead for ops in jobs for here in ops)
        model.add(variables.cycle >= occupied)


def add_slowdown_limits(model: cp_model.CpModel, variables: CyclicVariables) -> None:
    """No job's iteration, which is the cycle, exceeds its limit."""
    for loop in variables.ops:
        model.add(variables.cycle <= loop[0].job.limit_ticks)


def _per_job_and_group(variables: CyclicVariables) -> Iterator[list[OpVariables]]:
    """Ops of one job on one group, in the order of its loop."""
    for jobs in variables.by_group.values():
        yield from jobs


def _ready(before: OpVariables) -> cp_model.LinearExpr:
    return before.start + before.op.duration_ticks + before.op.wait_ticks


def _interval(
    model: cp_model.CpModel,
    variables: CyclicVariables,
    here: OpVariables,
    begin: cp_model.IntVar,
) -> cp_model.IntervalVar:
    duration = here.op.duration_ticks
    if isinstance(here.lead, int):
        return model.new_fixed_size_interval_var(begin, duration + here.lead, "")
    end = model.new_int_var(0, 3 * variables.horizon_ticks, "")
    return model.new_interval_var(begin, here.lead + duration, end, "")
