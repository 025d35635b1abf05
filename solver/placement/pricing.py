"""Which set of jobs would pay best on one more group: one exact knapsack per cell.

Load is rounded down to a grid, so that a value is never below the best set's: it bounds. The set
itself is checked with its exact load before it becomes a column.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from solver.objective import MILLION, Objective
from solver.placement.cells import LOAD_STEPS, Cell, JobTable
from solver.placement.knapsack import Ints, best_set


@dataclass(frozen=True, slots=True)
class Priced:
    """The best set of a cell at some duals."""

    value: int
    """Duals of its jobs less its cost, in millionths: no set of the cell has more."""
    jobs: tuple[int, ...]
    """Its jobs; empty where the value is a bound that no set was looked for."""


@dataclass(frozen=True, slots=True)
class Prices:
    """What pricing is done with."""

    duals: Ints
    """Per job what it pays, in millionths of the objective."""
    charge: int
    """What a group of the kind pays for being one of few, at least 0."""
    theta: int = 0
    """For `GPU_HOURS`: price per rate, in millionths."""


def price_cell(
    cell: Cell, objective: Objective, price: int, table: JobTable, prices: Prices
) -> Priced:
    """The best set of a cell, and its value less the charge."""
    profits = _profits(cell, objective, price, table, prices, cell.jobs, cell.exact_loads)
    own = np.array([cell.forced])
    base = int(_profits(cell, objective, price, table, prices, own, table.load[own])[0])
    base -= cell.cost + prices.charge
    useful = np.flatnonzero(profits > 0)
    slots = _slots(cell)
    top = np.sort(profits[useful])[-slots:].sum() if useful.size and slots else 0
    if base + int(top) > 0:
        top = min(int(top), _fluid(cell.loads[useful], profits[useful]))
    if base + int(top) <= 0:
        return Priced(base + int(top), ())
    kept = useful[_undominated(cell, profits, useful, slots)]
    chosen = best_set(cell.states, cell.kinds[kept], cell.loads[kept], profits[kept], LOAD_STEPS)
    jobs = tuple(int(cell.jobs[kept[at]]) for at in chosen.positions)
    return Priced(base + chosen.value, (cell.forced, *jobs))


def _profits(
    cell: Cell,
    objective: Objective,
    price: int,
    table: JobTable,
    prices: Prices,
    jobs: Ints,
    loads: Ints,
) -> Ints:
    """What each job pays beyond what it costs by itself."""
    duals: Ints = prices.duals[jobs]
    if cell.is_by_load:
        return duals - MILLION * price * loads
    return duals + _rate_value(objective, table, jobs, cell.cycle_ticks, prices.theta)


def _rate_value(
    objective: Objective, table: JobTable, jobs: Ints, cycle_ticks: int, theta: int
) -> Ints:
    """What the rates of jobs are worth in a cycle, rounded up."""
    if objective not in {Objective.GPU_HOURS, Objective.THROUGHPUT}:
        return np.zeros(jobs.size, np.int64)
    rates = MILLION * table.weight[jobs] * table.alone[jobs] // cycle_ticks + 1
    if objective is Objective.THROUGHPUT:
        return rates
    return rates * theta // MILLION + 1


def _slots(cell: Cell) -> int:
    """Jobs a set may have besides the forced one."""
    return cell.states.most_jobs


def _fluid(loads: Ints, profits: Ints) -> int:
    """What no set has more profit than: the best of a group that may hold parts of jobs."""
    order = np.argsort(loads / profits, kind="stable")
    filled = np.cumsum(loads[order])
    whole = int(np.searchsorted(filled, LOAD_STEPS, side="right"))
    profit = int(profits[order[:whole]].sum())
    if whole == order.size:
        return profit
    last = order[whole]
    left = LOAD_STEPS - (int(filled[whole - 1]) if whole else 0)
    return profit + -(-left * int(profits[last]) // int(loads[last]))


def _undominated(cell: Cell, profits: Ints, useful: Ints, slots: int) -> Ints:
    """Positions among `useful` of jobs that may be in a best set.

    A job is not needed where as many others as there are slots pay at least as much for no more
    load and no more memory: one of them is free to take its place.
    """
    loads, memory = cell.exact_loads[useful], cell.memory[useful]
    order = np.lexsort((memory, loads, -profits[useful]))
    loads, memory = loads[order], memory[order]
    covers = (loads[:, None] >= loads[None, :]) & (memory[:, None] >= memory[None, :])
    dominators = np.tril(covers, -1).sum(axis=1)
    kept: Ints = order[dominators < max(slots, 1)]
    return kept
