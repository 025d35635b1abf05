"""The linear and the integer master: which sets of jobs get a group, each job in one of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from ortools.linear_solver import pywraplp
from ortools.sat.python import cp_model

from solver.cpsat.cyclic import ENDINGS, Effort, Ending
from solver.objective import MILLION
from solver.placement.columns import Column
from solver.placement.knapsack import Ints


@dataclass(frozen=True, slots=True)
class LinearAnswer:
    """An optimum of the linear master."""

    value: float
    """In millionths of the objective."""
    duals: Ints
    """Per job, in millionths, rounded to the nearest."""
    charges: Ints
    """Per kind what one more group of it would save, in millionths, at least 0."""
    shares: tuple[float, ...]
    """Per column, in the order of their addition, how much of it is taken."""


class LinearMaster:
    """The linear relaxation, which columns are added to; GLOP keeps its basis in between."""

    def __init__(
        self, num_jobs: int, counts: Sequence[int], overflow_cost: int, *, is_cover: bool
    ) -> None:
        self._solver = pywraplp.Solver.CreateSolver("GLOP")
        infinity = self._solver.infinity()
        self._goal = self._solver.Objective()
        self._goal.SetMinimization()
        most = infinity if is_cover else 1
        self._jobs = [self._solver.Constraint(1, most) for _ in range(num_jobs)]
        self._kinds = [self._solver.Constraint(-infinity, count) for count in counts]
        self._columns: list[pywraplp.Variable] = []
        for row in self._jobs:
            # A way out at a price that no plan pays keeps the master feasible from the start.
            unserved = self._solver.NumVar(0, infinity, "")
            self._goal.SetCoefficient(unserved, overflow_cost / MILLION)
            row.SetCoefficient(unserved, 1)

    def add(self, column: Column) -> None:
        """Add a column."""
        share = self._solver.NumVar(0, self._solver.infinity(), "")
        self._goal.SetCoefficient(share, column.cost / MILLION)
        for job in column.jobs:
            self._jobs[job].SetCoefficient(share, 1)
        self._kinds[column.kind].SetCoefficient(share, 1)
        self._columns.append(share)

    def set_costs(self, columns: Iterable[Column]) -> None:
        """Give the columns, in the order of their addition, new costs."""
        for share, column in zip(self._columns, columns, strict=True):
            self._goal.SetCoefficient(share, column.cost / MILLION)

    def fix(self, index: int, share: int | None) -> None:
        """Take a column (1), forbid it (0) or free it again (None)."""
        infinity = self._solver.infinity()
        bounds = (0, infinity) if share is None else (share, share)
        self._columns[index].SetBounds(*bounds)

    def solve(self) -> LinearAnswer | None:
        """The optimum, or None if GLOP does not find one."""
        if self._solver.Solve() != pywraplp.Solver.OPTIMAL:
            return None
        return LinearAnswer(
            value=self._goal.Value() * MILLION,
            duals=_integers(row.dual_value() for row in self._jobs),
            charges=np.maximum(-_integers(row.dual_value() for row in self._kinds), 0),
            shares=tuple(share.solution_value() for share in self._columns),
        )


def _integers(values: Iterable[float]) -> Ints:
    return np.array([round(value * MILLION) for value in values], np.int64)


@dataclass(frozen=True, slots=True)
class IntegerAnswer:
    """What the integer master ended with."""

    ending: Ending
    columns: tuple[int, ...] | None
    """Indices of the columns taken; None if it found none."""
    bound: int
    """No choice among these columns costs less, in millionths; 0 unless proven."""


def choose(
    num_jobs: int,
    counts: Sequence[int],
    columns: Sequence[Column],
    hint: Iterable[int],
    effort: Effort,
    on_choice: Callable[[tuple[int, ...]], None] = lambda _: None,
) -> IntegerAnswer:
    """The cheapest choice of columns that serves each job exactly once."""
    model = cp_model.CpModel()
    taken = [model.new_bool_var("") for _ in columns]
    serving: list[list[cp_model.IntVar]] = [[] for _ in range(num_jobs)]
    using: list[list[cp_model.IntVar]] = [[] for _ in counts]
    for column, variable in zip(columns, taken, strict=True):
        using[column.kind].append(variable)
        for job in column.jobs:
            serving[job].append(variable)
    for variables in serving:
        model.add_exactly_one(variables)
    for count, variables in zip(counts, using, strict=True):
        if len(variables) > count:
            model.add(sum(variables) <= count)
    unit = int(np.gcd.reduce([column.cost for column in columns])) or 1
    model.minimize(
        sum(column.cost // unit * variable for column, variable in zip(columns, taken, strict=True))
    )
    hinted = set(hint)
    for index, variable in enumerate(taken):
        model.add_hint(variable, index in hinted)
    solver = _solver(effort)
    status = solver.solve(model, _Listener(taken, on_choice))
    ending = ENDINGS[status]
    if ending not in {Ending.OPTIMAL, Ending.FEASIBLE}:
        return IntegerAnswer(ending, None, 0)
    # CP-SAT reports its integer bound as a float, which may fall short by rounding.
    bound = round(np.ceil(solver.best_objective_bound - 1e-6)) * unit
    return IntegerAnswer(ending, _taken(taken, solver.value), bound)


def _solver(effort: Effort) -> cp_model.CpSolver:
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = max(effort.seconds, 0.01)
    solver.parameters.num_workers = effort.num_workers
    solver.parameters.random_seed = effort.seed
    if effort.deterministic_s is not None:
        solver.parameters.max_deterministic_time = effort.deterministic_s
    return solver


def _taken(
    variables: Sequence[cp_model.IntVar], value: Callable[[cp_model.IntVar], int]
) -> tuple[int, ...]:
    return tuple(index for index, variable in enumerate(variables) if value(variable))


class _Listener(cp_model.CpSolverSolutionCallback):  # type: ignore[misc]
    def __init__(
        self,
        variables: Sequence[cp_model.IntVar],
        told: Callable[[tuple[int, ...]], None],
    ) -> None:
        super().__init__()
        self._variables = variables
        self._told = told

    def on_solution_callback(self) -> None:
        self._told(_taken(self._variables, self.value))
