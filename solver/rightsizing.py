"""Right-sizing: which jobs share how many groups, so that a unit of work costs least.

Set partitioning into cells by column generation: the linear master prices jobs, sets that may be
worth it are grown from the best ones there are, and CP-SAT chooses among them. The cells chosen are
confirmed by the simulator of the very arbiter and rule that run, and a cell that fails there is
never used again. The ratio of price to work is minimised by Dinkelbach's method.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

from solver.arrangements import Cell, Market
from solver.cellsearch import CellSearch, Ends, Ids
from solver.cellvalue import Effort, Sizing, Value
from solver.pins import bundles
from solver.regions import Regions
from solver.scoring import Dispatch
from solver.workloads import Workload

PATIENCE = 5
"""Rounds in succession that tried no new set, after which there are hardly any left."""
REPAIRS = 4
"""Regions that sets are made for where chosen cells could not be confirmed."""


@dataclass(frozen=True, slots=True)
class Standing:
    """How far a search is."""

    num_tried: int
    """Sets of jobs tried."""
    ratio: float
    """Price per unit of work of the best shares of those sets; of the choice where it is made."""
    num_missed: int = 0
    """Sets of the choice that could not be confirmed in time: their jobs have groups of their
    own."""


OnStanding = Callable[[Standing], None]


def right_size(
    market: Market,
    jobs: Sequence[Workload],
    *,
    dispatch: Dispatch,
    effort: Effort | None = None,
    seed: int = 0,
    budget_s: float | None = None,
    known: Iterable[Collection[str]] = (),
    on_standing: OnStanding = lambda _standing: None,
) -> tuple[Cell, ...]:
    """Cells that serve every job within its limit at the least price per unit of work.

    Parameters
    ----------
    market
        Arrangement and prices; its `max_jobs` bounds how many share a group.
    jobs
        The jobs.
    dispatch
        Plan and rule that the cells will run under.
    effort
        How hard to search.
    seed
        Of the search.
    budget_s
        Seconds the call may take; cells that could not be confirmed in time are not used. None:
        as many as the effort takes, so that the answer is the same on every machine.
    known
        Sets of jobs, by name, that share already or may: they are tried first, and chosen until
        better ones are found; of those that have jobs in common the first.
    on_standing
        Told after each round, and at the end.

    Raises
    ------
    PlanError
        Jobs that are pinned to the same groups do not keep their limits there.
    """
    effort = Effort() if effort is None else effort
    theta = 0.0 if effort.is_by_price else market.dedicated_price
    row = bundles(market, jobs)
    ends = Ends.after(time.monotonic(), budget_s)
    search = CellSearch(Sizing(market, effort, theta), row, random.Random(seed), ends)
    places = {job.name: index for index, bundle in enumerate(row) for job in bundle}
    sets = [tuple(sorted({places[name] for name in names})) for names in known]
    search.begin(dispatch, sets)
    num_barren = 0
    for _ in range(effort.steps):
        num_tried = len(search.tried)
        search.grow()
        on_standing(Standing(len(search.tried), search.sizing.theta))
        num_barren = num_barren + 1 if len(search.tried) == num_tried else 0
        if num_barren == PATIENCE:
            break
    chosen = _settle(search, dispatch)
    cells = tuple(value.cell for value in chosen.values())
    ratio = sum(cell.price for cell in cells) / sum(value.work for value in chosen.values())
    on_standing(Standing(len(search.tried), ratio, search.num_missed))
    return cells


def _settle(search: CellSearch, dispatch: Dispatch) -> dict[Ids, Value]:
    """The best choice whose cells are all confirmed."""
    search.look_again()
    chosen = search.choose()
    regions, effort = Regions(search), search.sizing.effort
    regions.improve(effort.num_regions)
    for _ in range(effort.max_rounds):
        chosen = search.choice
        # What saves most first.
        saved = {ids: search.own_price(ids) - value.cell.price for ids, value in chosen.items()}
        ordered = sorted(chosen, key=lambda ids: (-saved[ids], ids))
        # Confirming takes longest: it waits for a choice of sound sets, unless time may end before.
        failed = search.unsound(ordered) if search.ends.all_s is None else []
        if not failed:
            failed = [
                ids
                for ids in ordered
                if search.unsound([ids]) or not search.is_confirmed(ids, dispatch)
            ]
        if not failed:
            return chosen
        if search.ends.is_over:
            break
        search.ban(failed)
        if search.ends.is_looked:
            search.choose()
        search.mend()
        regions.improve(REPAIRS, {index for ids in failed for index in ids})
    search.num_missed = sum(ids not in search.confirmed for ids in chosen if len(ids) > 1)
    return search.choose(search.confirmed)
