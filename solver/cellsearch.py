"""Column generation over cells: the linear master prices jobs, and sets that may be worth it grow.

Sets are made from the best ones there are, valued many at a time, and chosen among by CP-SAT.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations, islice

from solver.cellvalue import Sizing, Value, confirming_s, holds, look_longer_each, looking_s
from solver.cpsat import guard
from solver.cpsat.master import LinearMaster
from solver.objective import MILLION
from solver.pins import Bundle, least_cell
from solver.placement.columns import Column
from solver.scoring import Dispatch
from solver.workloads import Workload

Ids = tuple[int, ...]
"""Jobs by index, ascending."""
TRIES = 1_000
"""Sets varied at random in a round of generation."""
MERGES = 150
"""Pairs of sets put together in a round."""
FRESH = 50
"""Sets drawn at random in a round."""
NEAR_PAIRS = 3
"""Jobs that follow a job in length and are tried beside it first."""
MOST_NEIGHBOURS = 8
"""Jobs that follow each other in length are tried together up to this many."""
JOINING = 6
"""Jobs that in a round are tried beside each of the best sets."""
NUM_PARENTS = 200
"""Best sets that others are grown from, besides those in use."""
NEAR = 12
"""Places in the order of length within which half of the replacements are sought."""
MOST_COLUMNS = 6_000
"""Sets of several jobs that are kept. When there are more, two thirds of them stay: those that miss
least, and those in use."""
MOST_TOGETHER = 4_000
"""Sets that are valued together at most."""
FEW_TOGETHER, MANY_TOGETHER = 8, 64
"""The same where there is an end, at first and at most: about what `TOGETHER_S` is enough for."""
TOGETHER_S = 0.2
"""Seconds after which it is looked again whether there is time for more."""
SLACK = 0.02
"""Share of its own groups' price by which a set may miss its jobs' prices and yet be kept: the best
choice of whole sets uses such."""
NUM_LOOKED = 1_000
"""Sets that are valued longer before the first choice, by what they miss."""
LOOKED_TOGETHER = 10
"""Sets that are valued longer together where there is an end."""
MAX_CHOICES = 1_000
"""Sets that CP-SAT chooses among, by what they miss: with several times as many it comes less far
in its time."""
CHOICE_DETERMINISTIC_S = 2.0
"""CP-SAT's own seconds for a choice: the same answer on every machine."""
CHOICE_S = 300.0
"""Wall time that stops a choice in any case: far above what its own seconds take on a busy machine,
so that the answer does not depend on the load."""
GROWTH_SHARE = 0.4
"""Share of a budget after which sets are chosen and confirmed."""
SAME_RATIO = 0.005
"""Ratios this near to each other need no other choice: sets are worth the same under both."""
LOOK_SHARE = 0.3
"""Share of the rest in which sets are valued longer."""
LAST_S = 0.4
"""Seconds of a budget in which nothing is begun any more: what is under way ends in it."""
LEAST_CHOICE_S = 1.0
"""With less time CP-SAT is not started: loading it takes nearly as long."""
_UNSERVED = 1_000
"""Price of leaving a job out, as long as its own groups cost a tenth of that at most."""


@dataclass(frozen=True, slots=True)
class Ends:
    """When a search stops to grow, and when it has to have ended; None: never."""

    growth_s: float | None
    """Clock of `time.monotonic`."""
    all_s: float | None

    @classmethod
    def after(cls, began_s: float, budget_s: float | None) -> Ends:
        """The ends of a search with a budget."""
        if budget_s is None:
            return cls(None, None)
        kept_s = min(LAST_S, (1 - GROWTH_SHARE) * budget_s)
        return cls(began_s + GROWTH_SHARE * budget_s, began_s + budget_s - kept_s)

    @property
    def is_grown(self) -> bool:
        """Whether no other set is to be tried."""
        return self.growth_s is not None and time.monotonic() > self.growth_s

    @property
    def looked_s(self) -> float | None:
        """When sets are no longer valued anew but chosen and confirmed."""
        if self.growth_s is None or self.all_s is None:
            return None
        return self.growth_s + LOOK_SHARE * (self.all_s - self.growth_s)

    @property
    def is_looked(self) -> bool:
        """Whether that moment is over."""
        return self.looked_s is not None and time.monotonic() > self.looked_s

    def parts(self, sets: Iterable[Ids]) -> Iterator[list[Ids]]:
        """Sets in parts: large ones, or such as are soon done where there is an end."""
        left, size = iter(sets), MOST_TOGETHER if self.all_s is None else FEW_TOGETHER
        began_s = time.monotonic()
        while part := list(islice(left, size)):
            yield list(dict.fromkeys(part))
            ended_s = time.monotonic()
            if self.all_s is not None:
                is_brief = ended_s - began_s < TOGETHER_S
                size = min(2 * size, MANY_TOGETHER) if is_brief else max(size // 2, 1)
            began_s = ended_s

    def soon_s(self, share: float) -> float | None:
        """When so much of the time left is spent."""
        now_s = time.monotonic()
        return None if self.all_s is None else now_s + share * max(self.all_s - now_s, 0.0)

    @property
    def is_over(self) -> bool:
        """Whether the budget is spent."""
        return self.all_s is not None and time.monotonic() > self.all_s

    def allow(self, seconds: float) -> bool:
        """Whether so much time is left."""
        return self.all_s is None or time.monotonic() + seconds <= self.all_s

    @property
    def choice_s(self) -> float:
        """Seconds that a choice may take."""
        if self.all_s is None:
            return CHOICE_S
        return min(CHOICE_S, max((self.all_s - time.monotonic()) / 3, 0.0))


@dataclass(slots=True, eq=False)
class CellSearch:
    """A search under way."""

    sizing: Sizing
    row: tuple[Bundle, ...]
    """Jobs by length, those together that are pinned to the same groups: sets are made of these."""
    rng: random.Random
    ends: Ends
    columns: dict[Ids, Value] = field(default_factory=dict)
    """Sets worth choosing among, in the order of their addition to the master."""
    duals: list[float] = field(default_factory=list)
    """Per job its price in the linear master."""
    tried: set[Ids] = field(default_factory=set)
    in_use: list[Ids] = field(default_factory=list)
    """Sets that the linear master takes."""
    chosen: list[Ids] = field(default_factory=list)
    """The best choice of whole sets so far."""
    sound: set[Ids] = field(default_factory=set)
    """Sets that keep their limits under other draws than those they were valued with."""
    num_missed: int = 0
    """Chosen sets that were not confirmed in the end."""
    share: float = 1.0
    """Share of the sets of a round that are tried."""
    is_theta_kept: bool = False
    """Whether what a unit of work is worth was settled elsewhere."""
    confirmed: set[Ids] = field(default_factory=set)
    """Sets that keep them under the arbiter, too."""

    @property
    def most(self) -> int:
        """Most jobs of a set."""
        return min(self.sizing.effort.max_cell_jobs, len(self.row))

    def begin(self, dispatch: Dispatch, known: Iterable[Ids] = ()) -> None:
        """Try each job alone, known sets, jobs that follow each other in length, and all pairs."""
        for index, bundle in enumerate(self.row):
            is_brief = self.ends.is_over
            self.columns[index,] = least_cell(self.sizing, bundle, dispatch, is_brief=is_brief)
        self.duals = [self.own_price((index,)) for index in range(len(self.row))]
        self.price()
        known = list(known)
        self._try_all(known)
        for ids in known:
            if ids in self.columns and not any(set(ids) & set(other) for other in self.chosen):
                self.chosen.append(ids)
        count = len(self.row)
        # Where time is short, every job has been tried with some other one.
        for gap in range(1, NEAR_PAIRS + 1):
            self._try_all((first, first + gap) for first in range(count - gap))
        self.price()
        self._try_all(
            tuple(range(first, first + size))
            for size in range(3, min(self.most, MOST_NEIGHBOURS) + 1)
            for first in range(count - size + 1)
        )
        self.price()
        self._try_all(combinations(range(count), 2))
        self.price()

    def grow(self) -> None:
        """One round: sets made from the best ones, and the prices anew."""
        if self.ends.is_grown:
            return
        parents = [*sorted(self.columns, key=self._missing)[:NUM_PARENTS], *self.in_use]
        self._try_all(self._proposals(parents))
        self.price()
        self.ban(self.unsound(self.in_use))
        self._drop_worst()

    def _proposals(self, parents: Sequence[Ids]) -> Iterator[Ids]:
        """Sets of jobs that may be worth more than those there are."""
        num_joining = min(math.ceil(self.share * JOINING), len(self.row))
        for joining in self.rng.sample(range(len(self.row)), num_joining):
            for ids in parents:
                if joining not in ids:
                    yield tuple(sorted((*ids, joining)))
        for _ in range(round(self.share * TRIES)):
            yield _varied(self.rng, len(self.row), self.rng.choice(parents))
        for _ in range(round(self.share * MERGES)):
            one, other = self.rng.choice(self.in_use or parents), self.rng.choice(parents)
            # More groups to choose from, so that fewer stand idle.
            yield tuple(sorted({*one, *other}))
        for _ in range(round(self.share * FRESH)):
            size = self.rng.randint(min(3, self.most), self.most)
            yield tuple(sorted(self.rng.sample(range(len(self.row)), size)))

    def _drop_worst(self) -> None:
        """Keep of many sets those that may still be used."""
        if len(self.columns) <= MOST_COLUMNS + len(self.row):
            return
        several = sorted((ids for ids in self.columns if len(ids) > 1), key=self._missing)
        kept = {*several[: MOST_COLUMNS * 2 // 3], *self.in_use, *self.chosen}
        for ids in several:
            if ids not in kept:
                self.sizing.forget(self.jobs_of(ids))
                del self.columns[ids]

    def unsound(self, sets: Iterable[Ids]) -> list[Ids]:
        """Those that do not keep their limits under more draws; these value all others then.

        Among them are those that no time is left to look at.
        """
        new = [ids for ids in sets if len(ids) > 1 and ids not in self.sound]
        effort, values = self.sizing.effort, list[Value | None]()
        size = MOST_TOGETHER if self.ends.all_s is None else LOOKED_TOGETHER
        for start in range(0, len(new), size):
            cells = [self.columns[ids].cell for ids in new[start : start + size]]
            if not self.ends.allow(sum(looking_s(cell, effort) for cell in cells)):
                break
            values += look_longer_each(cells, effort)
        values += [None] * (len(new) - len(values))
        for ids, value in zip(new, values, strict=True):
            if value is not None:
                self.columns[ids] = value
                self.sound.add(ids)
        return [ids for ids, value in zip(new, values, strict=True) if value is None]

    def look_again(self) -> None:
        """Value the sets longer that a choice may take, and give those up that do not hold."""
        best = sorted(self.columns, key=self._missing)[:NUM_LOOKED]
        size = NUM_LOOKED if self.ends.all_s is None else LOOKED_TOGETHER
        for start in range(0, len(best), size):
            if self.ends.is_looked:
                break
            self.ban(self.unsound(best[start : start + size]))
        self.price()

    def is_confirmed(self, ids: Ids, dispatch: Dispatch) -> bool:
        """Whether a set keeps its limits under the arbiter; no, where no time is left to look."""
        if len(ids) == 1 or ids in self.confirmed:
            return True
        cell, effort = self.columns[ids].cell, self.sizing.effort
        if self.ends.allow(confirming_s(cell, effort)) and holds(cell, dispatch, effort):
            self.confirmed.add(ids)
        return ids in self.confirmed

    def choose(self, among: Collection[Ids] | None = None) -> dict[Ids, Value]:
        """The best choice of whole sets; jobs alone are always among them."""
        known = [ids for ids in self.columns if among is None or len(ids) == 1 or ids in among]
        ordered = sorted(known, key=lambda ids: (len(ids) > 1, self.missed(ids)))
        chosen = self._known_choice(set(known))
        # What is in hand is always among them: CP-SAT starts from it.
        ordered = list(dict.fromkeys([*chosen, *ordered]))[: max(MAX_CHOICES, len(self.row) * 2)]
        place = {ids: index for index, ids in enumerate(ordered)}
        for _ in range(1 if self.sizing.effort.is_by_price or self.chosen else 2):
            if self.ends.choice_s < LEAST_CHOICE_S:
                break
            found = guard.choose(
                len(self.row),
                [self._column(ids) for ids in ordered],
                [place[ids] for ids in chosen if ids in place],
                budget_s=self.ends.choice_s,
                deterministic_s=CHOICE_DETERMINISTIC_S,
            )
            if found is not None:
                chosen = [ordered[at] for at in found]
            before = self.sizing.theta
            self.set_theta((self.columns[ids], 1.0) for ids in chosen)
            if math.isclose(before, self.sizing.theta, rel_tol=SAME_RATIO):
                break
        self.chosen = chosen
        return self.choice

    @property
    def choice(self) -> dict[Ids, Value]:
        """The best choice of whole sets so far."""
        return {ids: self.columns[ids] for ids in self.chosen}

    def mend(self) -> None:
        """Put the best of what there is in place of chosen sets that were given up."""
        self.chosen = self._known_choice(self.columns.keys())

    def _known_choice(self, known: Collection[Ids]) -> list[Ids]:
        """The last choice, with the best of what is known in place of what no longer is."""
        kept = [ids for ids in self.chosen if ids in known]
        served = {index for ids in kept for index in ids}
        for ids in sorted(known, key=lambda ids: (len(ids) == 1, self._missing(ids), ids)):
            if served.isdisjoint(ids):
                kept.append(ids)
                served.update(ids)
        return kept

    def ban(self, failed: Iterable[Ids]) -> None:
        """Use these cells never again; others for the same jobs may come in their place."""
        for ids in failed:
            value = self.columns.pop(ids)
            self.sizing.ban(value.cell)
            self.sound.discard(ids)
            self.confirmed.discard(ids)
            other = self.sizing.best(self.jobs_of(ids), self._cutoff(ids))
            if other is not None:
                self.columns[ids] = other
        # The next master may have no answer in time, and these then stay what is in use.
        self.in_use = [ids for ids in self.in_use if ids in self.columns]

    def _try_all(self, sets: Iterable[Ids]) -> None:
        """Value sets that are new, as far as there is time, and keep those that may be of use."""
        new = (ids for ids in sets if 1 < len(ids) <= self.most and ids not in self.tried)
        for together in self.ends.parts(new):
            if self.ends.is_grown:
                return
            self.tried.update(together)
            asked = [(self.jobs_of(ids), self._cutoff(ids)) for ids in together]
            for ids, value in zip(together, self.sizing.best_each(asked), strict=True):
                if value is None:
                    self.sizing.forget(self.jobs_of(ids))
                else:
                    self.columns[ids] = value

    def _cutoff(self, ids: Ids) -> float:
        """Sets that are reduced less are worth keeping."""
        return sum(self.duals[i] for i in ids) + SLACK * self.own_price(ids)

    def own_price(self, ids: Ids) -> float:
        """What groups of their own cost the jobs, more where their work is important."""
        return sum(map(self.sizing.market.worth, self.jobs_of(ids)))

    def jobs_of(self, ids: Ids) -> list[Workload]:
        """The jobs of a set."""
        return [job for index in ids for job in self.row[index]]

    def price(self) -> None:
        """Solve the linear master over all sets, at the ratio that it then has."""
        dearest = max(self.own_price((index,)) for index in range(len(self.row)))
        unserved = round(max(_UNSERVED, 10 * dearest) * MILLION)
        master = LinearMaster(len(self.row), (len(self.row),), unserved, is_cover=False)
        for ids in self.columns:
            master.add(self._column(ids))
        is_settled = self.sizing.effort.is_by_price or self.is_theta_kept
        for _ in range(1 if is_settled else 3):
            answer = master.solve()
            if answer is None:
                return
            before = self.sizing.theta
            self.set_theta(zip(self.columns.values(), answer.shares, strict=True))
            shares = zip(self.columns, answer.shares, strict=True)
            self.in_use = [ids for ids, share in shares if share > 1e-6]
            self.duals = [float(dual) / MILLION for dual in answer.duals]
            if math.isclose(before, self.sizing.theta, rel_tol=1e-6):
                break
            master.set_costs(self._column(ids) for ids in self.columns)

    def part(self, ids: Ids, ends: Ends, share: float) -> CellSearch:
        """A search for some of the jobs, with what is known of them, at the same prices of work.

        Parameters
        ----------
        ids
            The jobs.
        ends
            Of the part.
        share
            Share of the sets of a round that it tries; 0: it makes none.
        """
        place = {index: n for n, index in enumerate(ids)}

        def within(sets: Iterable[Ids]) -> dict[Ids, Ids]:
            """Sets of these jobs alone, by what they are called in the part."""
            inside = filter(place.keys().__ge__, map(frozenset, sets))
            ordered = (tuple(sorted(here)) for here in inside)
            return {tuple(place[i] for i in here): here for here in ordered}

        row = tuple(self.row[i] for i in ids)
        found = CellSearch(self.sizing, row, self.rng, ends, share=share, is_theta_kept=True)
        known = within(self.columns)
        found.columns = {mine: self.columns[here] for mine, here in known.items()}
        found.tried = set(within(self.tried)) if share else set()
        found.sound = {mine for mine, here in known.items() if here in self.sound}
        found.chosen = list(within(self.chosen))
        found.duals = [self.duals[i] for i in ids]
        return found

    def learn(self, part: CellSearch, jobs: Ids) -> None:
        """Take over what a search for some of the jobs has found, and drop what it gave up."""
        found = {tuple(jobs[i] for i in ids): value for ids, value in part.columns.items()}
        here = set(jobs)
        gone = [ids for ids in self.columns if here.issuperset(ids) and ids not in found]
        for ids in gone:
            self.sizing.forget(self.jobs_of(ids))
            del self.columns[ids]
        self.columns.update(found)
        self.in_use = [ids for ids in self.in_use if ids in self.columns]
        for mine, theirs in ((self.sound, part.sound), (self.tried, part.tried)):
            mine.update(tuple(jobs[i] for i in ids) for ids in theirs)
        self.sound.difference_update(gone)
        self.confirmed.difference_update(gone)

    def set_theta(self, taken: Iterable[tuple[Value, float]]) -> None:
        """A unit of work is worth what it costs in these shares of sets."""
        if self.sizing.effort.is_by_price or self.is_theta_kept:
            return
        found = [(value.cell.price * share, value.work * share) for value, share in taken if share]
        self.sizing.theta = sum(price for price, _ in found) / sum(work for _, work in found)

    def _missing(self, ids: Ids) -> float:
        """By how much the set misses what its jobs are worth, per job."""
        return self.missed(ids) / len(ids)

    def missed(self, ids: Ids) -> float:
        """The same for all its jobs together: what a choice loses by it at least."""
        reduced = self.columns[ids].reduced(self.sizing.theta)
        return reduced - sum(self.duals[i] for i in ids)

    def _column(self, ids: Ids) -> Column:
        return Column(0, ids, round(self.columns[ids].reduced(self.sizing.theta) * MILLION))


def _varied(rng: random.Random, num_jobs: int, ids: Ids) -> Ids:
    """The set with one or two jobs replaced, one added or left out."""
    taken = set(ids)
    what = rng.random()
    for _ in range(1 if what < 0.9 else 2):
        if not 0.65 <= what < 0.75:
            near = rng.choice(ids)
            low, high = max(near - NEAR, 0), min(near + NEAR, num_jobs - 1)
            is_near = rng.random() < 0.5
            taken.add(rng.randint(low, high) if is_near else rng.randrange(num_jobs))
        if not 0.75 <= what < 0.9:
            taken.discard(rng.choice(ids))
    return tuple(sorted(taken))
