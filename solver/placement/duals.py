"""Turns duals that no set of jobs should overpay into duals that provably none does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from solver.bounds import BoundClass
from solver.certificate import Certificate
from solver.objective import MILLION, Objective
from solver.placement.cells import Cell, Flags, JobTable, cells_of, job_table
from solver.placement.kinds import GroupKind, group_kinds
from solver.placement.knapsack import Ints
from solver.placement.pairs import impossible_pairs
from solver.placement.pricing import Priced, Prices, price_cell
from solver.problem import Problem

SCALES = 40
"""Scalings of the duals tried at most: each is a pass over an array."""


@dataclass(frozen=True, slots=True)
class Pricer:
    """The cells of a problem, ready to be priced at any duals."""

    problem: Problem
    objective: Objective
    kinds: tuple[GroupKind, ...]
    cells: tuple[tuple[int, Cell], ...]
    """Index of the kind and cell."""
    table: JobTable
    impossible: Flags
    """Pairs of jobs that are in no set; none where the class is universal."""

    @classmethod
    def of(
        cls,
        problem: Problem,
        objective: Objective,
        bound_class: BoundClass,
        impossible: Flags | None = None,
    ) -> Pricer:
        """Cut the sets of jobs of a problem into cells; None: the class tells impossible pairs."""
        kinds = group_kinds(problem)
        if impossible is not None:
            pass
        elif bound_class is BoundClass.UNIVERSAL:
            impossible = np.zeros((len(problem.jobs), len(problem.jobs)), np.bool_)
        else:
            impossible = impossible_pairs(problem)
        cells = tuple(
            (index, cell)
            for index, kind in enumerate(kinds)
            for cell in cells_of(problem, kind, objective, bound_class, impossible)
        )
        return cls(problem, objective, kinds, cells, job_table(problem), impossible)

    def fluid_duals(self) -> Ints:
        """What each job pays if groups could be shared like a fluid, in millionths."""
        price = min(kind.example.price for kind in self.kinds)
        whole = MILLION if self.objective is Objective.GROUPS else MILLION * price
        duals: Ints = self.table.busy * whole // self.table.limit
        return duals

    def price(self, duals: Ints, charges: Ints, theta: int = 0) -> tuple[Priced, ...]:
        """The best set of every cell."""
        return tuple(
            price_cell(
                cell,
                self.objective,
                self.kinds[kind].example.price,
                self.table,
                Prices(duals, int(charges[kind]), theta),
            )
            for kind, cell in self.cells
        )

    def certify(
        self, duals: Ints, charges: Ints, priced: Sequence[Priced], theta: int = 0
    ) -> Certificate:
        """Repair duals by what sets overpay, losing as little as possible.

        All sets of a cell hold its forced job, so lowering that job's dual mends the cell, and no
        other gets worse. Where costs are fixed all duals may be scaled down first.
        """
        values = np.array([entry.value for entry in priced], np.int64)
        costs = np.array([cell.cost for _, cell in self.cells], np.int64)
        best: Certificate | None = None
        for permille in self._scales(values, costs):
            scaled = values if permille == 1000 else _scale(values + costs, permille) - costs
            certificate = self._repaired(
                _scale(duals, permille), -_scale(-charges, permille), scaled, theta
            )
            if best is None or certificate.total > best.total:
                best = certificate
        assert best is not None
        return best

    def _scales(self, values: Ints, costs: Ints) -> tuple[int, ...]:
        if self.objective not in {Objective.GROUPS, Objective.COST}:
            return (1000,)
        over = values > 0
        ratios = np.unique(1000 * costs[over] // np.maximum(values[over] + costs[over], 1))
        return (1000, *ratios[:: max(1, ratios.size // SCALES)].tolist())

    def _repaired(self, duals: Ints, charges: Ints, values: Ints, theta: int) -> Certificate:
        excess = np.zeros_like(duals)
        for (_, cell), value in zip(self.cells, values.tolist(), strict=True):
            excess[cell.forced] = max(excess[cell.forced], value)
        duals = duals - excess
        return Certificate(
            objective=self.objective,
            duals={
                job.id: dual for job, dual in zip(self.problem.jobs, duals.tolist(), strict=True)
            },
            charges={
                group.id: charge
                for kind, charge in zip(self.kinds, charges.tolist(), strict=True)
                for group in kind.groups
                if charge > 0
            },
            theta=theta,
            is_pairwise=bool(self.impossible.any()),
        )


def _scale(values: Ints, permille: int) -> Ints:
    """Values times a factor, rounded down."""
    if permille == 1000:
        return values
    scaled: Ints = values * permille // 1000
    return scaled
