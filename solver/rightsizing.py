"""Right-sizing: which jobs share how many groups, so that a unit of work costs least.

Set partitioning into cells by column generation: the linear master prices jobs, sets that may be
worth it are grown from the best ones there are, and CP-SAT chooses among them. The cells chosen are
confirmed by the simulator of the very arbiter and rule that run, and a cell that fails there is
never used again. The ratio of price to work is minimised by Dinkelbach's method.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import combinations

from solver.arrangements import Cell, Market
from solver.cellvalue import (
    Effort,
    Sizing,
    Value,
    confirming_s,
    holds,
    look_longer,
    looking_s,
    shape,
)
from solver.cpsat import guard
from solver.cpsat.master import LinearMaster
from solver.exchanges import Ids, exchanges
from solver.objective import MILLION
from solver.pins import Bundle, bundles, least_cell
from solver.placement.columns import Column
from solver.scoring import Dispatch
from solver.workloads import Workload

TRIES = 100
"""Sets varied at random in a round of generation."""
MERGES = 60
"""Pairs of sets put together in a round."""
FRESH = 20
"""Sets drawn at random in a round."""
NEAR_PAIRS = 3
"""Jobs that follow a job in length and are tried beside it first."""
MOST_NEIGHBOURS = 8
"""Jobs that follow each other in length are tried together up to this many."""
JOINING = 6
"""Jobs that in a round are tried beside each of the best sets."""
NUM_PARENTS = 60
"""Best sets that others are grown from, besides those in use."""
NEAR = 12
"""Places in the order of length within which most replacements are sought."""
SLACK = 0.02
"""Share of its own groups' price by which a set may miss its jobs' prices and yet be kept: the best
choice of whole sets uses such."""
NUM_LOOKED = 300
"""Sets that are valued longer before the first choice, by what they miss."""
MAX_CHOICES = 1_000
"""Sets that CP-SAT chooses among, by what they miss: with several times as many it comes less far
in its time."""
CHOICE_DETERMINISTIC_S = 2.0
"""CP-SAT's own seconds for the first choice: the same answer on every machine."""
REPAIR_DETERMINISTIC_S = 2.0
"""The same for a choice that changes another one."""
CHOICE_S = 300.0
"""Wall time that stops a choice in any case: far above what its own seconds take on a busy machine,
so that the answer does not depend on the load."""
GROWTH_SHARE = 0.4
"""Share of a budget after which sets are chosen and confirmed."""
MAX_EXCHANGING = 300
"""Chosen sets among which jobs are exchanged, those that miss most: pairs may be millions."""
MOST_IMPROVEMENTS = 4
"""Choices in turn with exchanges at most."""
LEAST_GAIN = 1e-4
"""Share of its jobs' own price that an exchange is worth at least, and of the ratio that choosing
anew after exchanges is: less is within what valuations err by."""
SAME_RATIO = 0.005
"""Ratios this near to each other need no other choice: sets are worth the same under both."""
LOOK_SHARE = 0.3
"""Share of the rest in which sets are valued longer."""
PATIENCE = 5
"""Rounds in succession that tried no new set, after which there are hardly any left."""
LAST_S = 0.4
"""Seconds of a budget in which nothing is begun any more: what is under way ends in it."""
LEAST_CHOICE_S = 1.0
"""With less time CP-SAT is not started: loading it takes nearly as long."""
_UNSERVED = 1_000
"""Price of leaving a job out, as long as its own groups cost a tenth of that at most."""


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
    search = _Search(Sizing(market, effort, theta), row, random.Random(seed), ends)
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


def _settle(search: _Search, dispatch: Dispatch) -> dict[Ids, Value]:
    """The best choice whose cells are all confirmed."""
    search.look_again()
    _Improvement(search).run()
    for _ in range(search.sizing.effort.max_rounds):
        chosen = search.choose()
        failed = [ids for ids in chosen if not search.is_sound(ids)]
        # Confirming takes longest: it waits for a choice of sound sets, unless time may end before.
        if not failed or search.ends.all_s is not None:
            sound = [ids for ids in chosen if ids not in failed]
            failed += [ids for ids in sound if not search.is_confirmed(ids, dispatch)]
        if not failed:
            return chosen
        if search.ends.is_over:
            break
        search.ban(failed)
    search.num_missed = sum(ids not in search.confirmed for ids in chosen if len(ids) > 1)
    return search.choose(search.confirmed)


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
    def is_looked(self) -> bool:
        """Whether sets are no longer valued anew but chosen and confirmed."""
        if self.growth_s is None or self.all_s is None:
            return False
        return time.monotonic() > self.growth_s + LOOK_SHARE * (self.all_s - self.growth_s)

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
        return min(CHOICE_S, max((self.all_s - time.monotonic()) / 2, 0.0))


@dataclass(slots=True, eq=False)
class _Search:
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
    confirmed: set[Ids] = field(default_factory=set)
    """Sets that keep them under the arbiter, too."""

    @property
    def most(self) -> int:
        """Most jobs of a set."""
        return min(self.sizing.effort.max_cell_jobs, len(self.row))

    def begin(self, dispatch: Dispatch, known: Iterable[Ids] = ()) -> None:
        """Try each job alone, known sets, all pairs, and jobs that follow each other in length."""
        for index, bundle in enumerate(self.row):
            is_brief = self.ends.is_over
            self.columns[index,] = least_cell(self.sizing, bundle, dispatch, is_brief=is_brief)
        self.duals = [self.own_price((index,)) for index in range(len(self.row))]
        self._price()
        for ids in known:
            self._try(ids)
            if ids in self.columns and not any(set(ids) & set(other) for other in self.chosen):
                self.chosen.append(ids)
        # Where time is short, every job has been tried with some other one.
        for gap in range(1, NEAR_PAIRS + 1):
            for first in range(len(self.row) - gap):
                self._try((first, first + gap))
        for pair in combinations(range(len(self.row)), 2):
            if self.ends.is_grown:
                break
            self._try(pair)
        self._price()
        for size in range(3, min(self.most, MOST_NEIGHBOURS) + 1):
            for first in range(len(self.row) - size + 1):
                self._try(tuple(range(first, first + size)))
        self._price()

    def grow(self) -> None:
        """One round: sets made from the best ones, and the prices anew."""
        if self.ends.is_grown:
            return
        parents = [*sorted(self.columns, key=self._missing)[:NUM_PARENTS], *self.in_use]
        for joining in self.rng.sample(range(len(self.row)), min(JOINING, len(self.row))):
            for ids in parents:
                if len(ids) < self.most and joining not in ids:
                    self._try(tuple(sorted((*ids, joining))))
        for _ in range(TRIES):
            self._try(self._varied(self.rng.choice(parents)))
        for _ in range(MERGES):
            self._try(self._merged(parents))
        for _ in range(FRESH):
            size = self.rng.randint(min(3, self.most), self.most)
            self._try(tuple(sorted(self.rng.sample(range(len(self.row)), size))))
        self._price()
        self.ban([ids for ids in self.in_use if not self.is_sound(ids)])

    def is_sound(self, ids: Ids) -> bool:
        """Whether a set keeps its limits under more draws, which then value it.

        No, where no time is left to look.
        """
        if len(ids) == 1 or ids in self.sound:
            return True
        cell, effort = self.columns[ids].cell, self.sizing.effort
        value = look_longer(cell, effort) if self.ends.allow(looking_s(cell, effort)) else None
        if value is not None:
            self.columns[ids] = value
            self.sound.add(ids)
        return value is not None

    def look_again(self) -> None:
        """Value the sets longer that a choice may take, and give those up that do not hold."""
        best = sorted(self.columns, key=self._missing)[:NUM_LOOKED]
        self.ban(ids for ids in best if not self.ends.is_looked and not self.is_sound(ids))
        self._price()

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
        seconds = REPAIR_DETERMINISTIC_S if self.chosen else CHOICE_DETERMINISTIC_S
        for _ in range(1 if self.sizing.effort.is_by_price or self.chosen else 2):
            if self.ends.choice_s < LEAST_CHOICE_S:
                break
            found = guard.choose(
                len(self.row),
                [self._column(ids) for ids in ordered],
                [place[ids] for ids in chosen if ids in place],
                budget_s=self.ends.choice_s,
                deterministic_s=seconds,
            )
            if found is not None:
                chosen = [ordered[at] for at in found]
            before = self.sizing.theta
            self._set_theta((self.columns[ids], 1.0) for ids in chosen)
            if math.isclose(before, self.sizing.theta, rel_tol=SAME_RATIO):
                break
        self.chosen = chosen
        return {ids: self.columns[ids] for ids in chosen}

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
            self.sizing.banned.add(shape(value.cell))
            self.sound.discard(ids)
            other = self._best(ids)
            if other is not None:
                self.columns[ids] = other
        # The next master may have no answer in time, and these then stay what is in use.
        self.in_use = [ids for ids in self.in_use if ids in self.columns]

    def _try(self, ids: Ids) -> None:
        if not 1 < len(ids) <= self.most or ids in self.tried or self.ends.is_grown:
            return
        self.tried.add(ids)
        value = self._best(ids)
        if value is not None:
            self.columns[ids] = value

    def _best(self, ids: Ids) -> Value | None:
        slack = SLACK * self.own_price(ids)
        return self.best_below(ids, sum(self.duals[i] for i in ids) + slack)

    def own_price(self, ids: Ids) -> float:
        """What groups of their own cost the jobs, more where their work is important."""
        return sum(map(self.sizing.market.worth, self.jobs_of(ids)))

    def jobs_of(self, ids: Ids) -> list[Workload]:
        """The jobs of a set."""
        return [job for index in ids for job in self.row[index]]

    def best_below(self, ids: Ids, cutoff: float) -> Value | None:
        """The best cell for these jobs, if one is reduced below a cutoff."""
        return self.sizing.best(self.jobs_of(ids), cutoff)

    def _varied(self, ids: Ids) -> Ids:
        """The set with one job replaced, added or left out."""
        rng, taken = self.rng, set(ids)
        what = rng.random()
        if what < 0.85:
            near = rng.choice(ids)
            low, high = max(near - NEAR, 0), min(near + NEAR, len(self.row) - 1)
            taken.add(rng.randint(low, high) if what < 0.65 else rng.randrange(len(self.row)))
        if what < 0.55 or what >= 0.85:
            taken.discard(rng.choice(ids))
        return tuple(sorted(taken))

    def _merged(self, parents: Sequence[Ids]) -> Ids:
        """The jobs of two sets together: more groups to choose from, so that fewer stand idle."""
        one, other = self.rng.choice(self.in_use or parents), self.rng.choice(parents)
        return tuple(sorted({*one, *other}))

    def _price(self) -> None:
        """Solve the linear master over all sets, at the ratio that it then has."""
        dearest = max(self.own_price((index,)) for index in range(len(self.row)))
        unserved = round(max(_UNSERVED, 10 * dearest) * MILLION)
        master = LinearMaster(len(self.row), (len(self.row),), unserved, is_cover=False)
        for ids in self.columns:
            master.add(self._column(ids))
        for _ in range(1 if self.sizing.effort.is_by_price else 3):
            answer = master.solve()
            if answer is None:
                return
            before = self.sizing.theta
            self._set_theta(zip(self.columns.values(), answer.shares, strict=True))
            shares = zip(self.columns, answer.shares, strict=True)
            self.in_use = [ids for ids, share in shares if share > 1e-6]
            self.duals = [float(dual) / MILLION for dual in answer.duals]
            if math.isclose(before, self.sizing.theta, rel_tol=1e-6):
                break
            master.set_costs(self._column(ids) for ids in self.columns)

    def _set_theta(self, taken: Iterable[tuple[Value, float]]) -> None:
        if self.sizing.effort.is_by_price:
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


@dataclass(slots=True, eq=False)
class _Improvement:
    """Changes the chosen sets of a search two at a time."""

    search: _Search
    exchanged: set[tuple[Ids, Ids]] = field(default_factory=set)
    """Pairs of sets whose exchanges were tried."""

    def run(self) -> None:
        """Choose, and let the chosen sets exchange jobs, until that finds nothing better."""
        before = math.inf
        for _ in range(MOST_IMPROVEMENTS):
            if self.search.ends.is_looked:
                return
            self.search.choose()
            self._exchange()
            chosen = [self.search.columns[ids] for ids in self.search.chosen]
            after = sum(value.cell.price for value in chosen)
            if not self.search.sizing.effort.is_by_price:
                after /= sum(value.work for value in chosen)
            if after > before * (1 - LEAST_GAIN):
                return
            before = after

    def _exchange(self) -> None:
        """Let chosen sets exchange jobs, the worst first, as long as that is worth something."""
        num_left = self.search.sizing.effort.num_exchanges
        pairs = self._pairs()
        while pairs and num_left > 0:
            one, other = pairs.pop()
            for changed in exchanges(one, other, self.search.most):
                num_left -= 1
                if self.search.ends.is_looked or num_left < 0:
                    return
                if self._is_better(changed, (one, other)):
                    kept = [ids for ids in self.search.chosen if ids not in {one, other}]
                    self.search.chosen = [*kept, *filter(None, changed)]
                    pairs = self._pairs()
                    break

    def _pairs(self) -> list[tuple[Ids, Ids]]:
        """Pairs of chosen sets that are still to be tried, the most promising last."""
        worst = sorted(self.search.chosen, key=self.search.missed)[-MAX_EXCHANGING:]
        pairs = set(combinations(sorted(worst), 2)) - self.exchanged
        return sorted(pairs, key=lambda pair: (sum(map(self.search.missed, pair)), pair))

    def _is_better(self, changed: tuple[Ids, Ids], present: tuple[Ids, Ids]) -> bool:
        """Whether two sets are sound and worth more than two others; they are kept if they are."""
        self.exchanged.add(present)
        theta = self.search.sizing.theta
        least_gain = LEAST_GAIN * sum(map(self.search.own_price, present))
        most = sum(self.search.columns[ids].reduced(theta) for ids in present) - least_gain
        parts = [ids for ids in changed if ids]
        leasts = [self._least(ids) for ids in parts]
        found: dict[Ids, Value] = {}
        for place, ids in enumerate(parts):
            others = sum(v.reduced(theta) for v in found.values()) + sum(leasts[place + 1 :])
            value = self.search.columns.get(ids) or self.search.best_below(ids, most - others)
            if value is None or value.reduced(theta) >= most - others:
                return False
            found[ids] = value
        self.search.tried.update(found)
        self.search.columns.update(found)
        if not all(self.search.is_sound(ids) for ids in parts):
            self.search.ban([ids for ids in parts if len(ids) > 1 and ids not in self.search.sound])
            return False
        return sum(self.search.columns[ids].reduced(theta) for ids in parts) < most

    def _least(self, ids: Ids) -> float:
        """No cell for these jobs is reduced below this."""
        if len(ids) == 1:
            return self.search.columns[ids].reduced(self.search.sizing.theta)
        return self.search.sizing.least(self.search.jobs_of(ids))
