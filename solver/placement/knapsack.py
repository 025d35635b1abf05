"""The best set of jobs for what is left of a group: load on a grid, memory exact, few jobs.

Everything is in integers, so what it answers can be followed again to the last digit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

MAX_STATES = 400
"""Sums of memory told apart; where there are more, memory is rounded down to a grid."""
MEMORY_STEPS = 64
"""Steps of that grid."""
MAX_COUNTED_JOBS = 16
"""On that grid the number of jobs counts only where a group may carry no more than this."""
NEVER = -(2**60)
"""Value of what cannot be reached; far below any sum of profits."""

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class MemoryStates:
    """How many jobs, with how much memory together, a group may hold."""

    sizes: Ints
    """Different memory sizes, ascending."""
    num_states: int
    most_jobs: int
    moves: tuple[tuple[Ints, Ints], ...]
    """Per size: states it can be added to, and the states that gives."""


def memory_states(sizes: Ints, capacity: int, most_jobs: int) -> MemoryStates:
    """States that some of these sizes reach within a capacity, the empty one first.

    Exact where there are at most `MAX_STATES`; otherwise sizes count in whole steps of a grid,
    rounded down, so nothing that fits is left out.
    """
    distinct = np.unique(sizes)
    steps = [int(size) for size in distinct]
    most_jobs = min(most_jobs, int(sizes.size))
    counted = most_jobs if most_jobs < sizes.size else None
    found = _reach(steps, capacity, counted, MAX_STATES)
    if found is None:
        unit = max(capacity // MEMORY_STEPS, 1)
        coarse = [size // unit for size in steps]
        if counted is not None and counted > MAX_COUNTED_JOBS:
            counted = None
        found = _reach(coarse, capacity // unit, counted, None)
        assert found is not None
    num_states, moves = found
    return MemoryStates(distinct, num_states, most_jobs, moves)


def _reach(
    sizes: Sequence[int], capacity: int, most_jobs: int | None, most_states: int | None
) -> tuple[int, tuple[tuple[Ints, Ints], ...]] | None:
    """States and moves; the number of jobs is part of a state unless `most_jobs` is None."""
    index = {(0, 0): 0}
    states = [(0, 0)]
    pairs: list[list[tuple[int, int]]] = [[] for _ in sizes]
    for at, (count, used) in enumerate(states):
        if count == most_jobs:
            continue
        for kind, size in enumerate(sizes):
            after = (count if most_jobs is None else count + 1, used + size)
            if after[1] > capacity:
                break
            if after not in index:
                index[after] = len(states)
                states.append(after)
                if most_states is not None and len(states) > most_states:
                    return None
            pairs[kind].append((at, index[after]))
    moves = tuple(
        (np.array([a for a, _ in some], np.int64), np.array([b for _, b in some], np.int64))
        for some in pairs
    )
    return len(states), moves


@dataclass(frozen=True, slots=True)
class Chosen:
    """The best set found."""

    value: int
    """Its profit; no set has more."""
    positions: tuple[int, ...]
    """Where its jobs stand in what was given."""


def best_set(
    states: MemoryStates, kinds: Ints, loads: Ints, profits: Ints, capacity: int
) -> Chosen:
    """Choose the most profitable jobs within load, memory and number.

    Parameters
    ----------
    states
        What memory and number allow.
    kinds
        Per job the index of its memory in `states.sizes`.
    loads
        Per job its load in grid steps.
    profits
        Per job its profit.
    capacity
        Load there is room for, in grid steps.
    """
    values = np.full((states.num_states, capacity + 1), NEVER, np.int64)
    values[0] = 0
    taken = []
    for kind, load, profit in zip(kinds.tolist(), loads.tolist(), profits.tolist(), strict=True):
        source, target = states.moves[kind]
        # Fancy indexing copies, so a job is never added to a set that has it already.
        offered = values[source, : capacity + 1 - load] + profit
        kept = values[target, load:]
        better = offered > kept
        values[target, load:] = np.where(better, offered, kept)
        taken.append(better)
    state = int(values[:, capacity].argmax())
    value = int(values[state, capacity])
    return Chosen(value, _trace(states, kinds, loads, taken, state, capacity))


def _trace(
    states: MemoryStates,
    kinds: Ints,
    loads: Ints,
    taken: Sequence[NDArray[np.bool_]],
    state: int,
    capacity: int,
) -> tuple[int, ...]:
    left = capacity
    positions = []
    for at in range(len(taken) - 1, -1, -1):
        source, target = states.moves[int(kinds[at])]
        load = int(loads[at])
        row = np.flatnonzero(target == state)
        if row.size and left >= load and taken[at][row[0], left - load]:
            positions.append(at)
            state = int(source[row[0]])
            left -= load
    return tuple(positions)
