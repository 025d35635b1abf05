"""Plans a few chosen cells anew at a time: the linear master's fractions, made whole.

A choice takes sets whole, and the sets it would need beside each other are rarely among those that
were priced as if each could be taken in part. For the jobs of a few chosen cells they are found by
column generation of their own, and the best choice among them by exact search.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from solver.cellsearch import CellSearch, Ends, Ids
from solver.partition import best_partition

NUM_CELLS = 10
"""Chosen cells that are planned anew together, as long as they have no more jobs than the next."""
MOST_JOBS = 40
SHARE = 0.3
"""Share of the sets of a round of the whole search that a region tries which grows."""
MOST_BRIEF = 100
"""Regions at most that are chosen for anew among the sets there are."""
BRIEF_SHARE = 0.15
"""Share of the time left that is spent on those where there is an end."""
ATTEMPTS = 6
"""Choices in turn, as long as sets of theirs turn out not to keep their limits."""
LEAST_GAIN = 1e-4
"""Share of its jobs' own price that a change is worth at least: less is within what valuations err
by."""


@dataclass(slots=True, eq=False)
class Regions:
    """Changes the chosen cells of a search a few at a time."""

    search: CellSearch

    def improve(self, most: int, about: Collection[int] = ()) -> None:
        """Plan regions anew until that is of no use any more, first with the sets there are.

        Parameters
        ----------
        most
            Regions at most for which sets are made, too.
        about
            Jobs whose cells are part of every region, as far as they fit; none: any.
        """
        ends = self.search.ends
        brief = Ends(ends.looked_s, ends.soon_s(BRIEF_SHARE))
        for is_growing, number in ((False, MOST_BRIEF), (True, most)):
            num_vain = 0
            for _ in range(number):
                num_cells = len(self.search.chosen)
                is_over = ends.is_looked if is_growing else brief.is_over
                if is_over or num_cells < 2 or num_vain > num_cells:
                    break
                region = self._region(about)
                if not region:
                    break
                is_better = self._improve(region, is_growing=is_growing)
                num_vain = 0 if is_better else num_vain + 1

    def _region(self, about: Collection[int]) -> list[Ids]:
        """Some chosen cells: what misses most comes first more often than others."""
        search = self.search
        misses = [max(search.missed(ids), 0.0) for ids in search.chosen]
        floor = max(sum(misses) / len(misses), 1e-9)
        ranks = [
            search.rng.random() ** (1 / (missed + floor)) + any(i in about for i in ids)
            for ids, missed in zip(search.chosen, misses, strict=True)
        ]
        region: list[Ids] = []
        num_jobs = 0
        for _, ids in sorted(zip(ranks, search.chosen, strict=True), reverse=True):
            # Near the end, what is confirmed already is not given up any more.
            if search.ends.is_looked and ids in search.confirmed:
                continue
            if not region or (len(region) < NUM_CELLS and num_jobs + len(ids) <= MOST_JOBS):
                region.append(ids)
                num_jobs += len(ids)
        return region

    def _improve(self, region: list[Ids], *, is_growing: bool) -> bool:
        """Plan the jobs of some chosen cells anew; whether that is better."""
        search = self.search
        jobs = tuple(sorted(index for ids in region for index in ids))
        ends = Ends(search.ends.looked_s, search.ends.all_s)
        part = search.part(jobs, ends, SHARE if is_growing else 0.0)
        part.price()
        if is_growing:
            part.grow()
        chosen = _choose(part)
        search.learn(part, jobs)
        lost = [ids for ids in region if ids not in search.columns]
        if chosen is None and not lost:
            return False
        kept = [ids for ids in search.chosen if ids not in region]
        # Where nothing was found in place of what does not keep its limits, jobs have their own.
        own = [(index,) for ids in lost for index in ids]
        found = [ids for ids in region if ids not in lost] + own
        if chosen is not None:
            found = [tuple(jobs[i] for i in ids) for ids in chosen]
        search.chosen = [*kept, *found]
        search.set_theta((search.columns[ids], 1.0) for ids in search.chosen)
        return chosen is not None


def _choose(part: CellSearch) -> list[Ids] | None:
    """The best choice of sound sets; None if it is not better than the present one."""
    theta = part.sizing.theta
    least_gain = LEAST_GAIN * part.own_price(tuple(range(len(part.row))))

    def excess(sets: Iterable[Ids]) -> float:
        return sum(part.columns[ids].reduced(theta) for ids in sets) - sum(part.duals)

    part.ban(part.unsound(ids for ids in part.chosen if ids in part.columns))
    is_whole = all(ids in part.columns for ids in part.chosen)
    most = excess(part.chosen) - least_gain if is_whole else math.inf
    for _ in range(ATTEMPTS):
        if part.ends.is_over:
            return None
        sets = list(part.columns)
        found = best_partition(len(part.row), sets, [part.missed(ids) for ids in sets], most)
        if found is None:
            return None
        chosen = [sets[n] for n in found]
        failed = part.unsound(chosen)
        if not failed:
            return chosen if excess(chosen) < most else None
        part.ban(failed)
    return None
