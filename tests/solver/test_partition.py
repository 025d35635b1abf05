"""The cheapest choice of whole sets is found, and no other."""

from __future__ import annotations

import math
from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from solver.partition import best_partition

NUM_JOBS = 5
SETS = st.frozensets(st.integers(0, NUM_JOBS - 1), min_size=1, max_size=3)


def cheapest(sets, excess):
    """By brute force."""
    least = math.inf
    for size in range(1, NUM_JOBS + 1):
        for some in combinations(range(len(sets)), size):
            served = [job for n in some for job in sets[n]]
            if sorted(served) == list(range(NUM_JOBS)):
                least = min(least, sum(excess[n] for n in some))
    return least


@given(st.lists(st.tuples(SETS, st.integers(0, 20)), min_size=1, max_size=12), st.integers(1, 60))
def test_it_equals_brute_force(columns, most):
    sets, excess = [sorted(jobs) for jobs, _ in columns], [float(cost) for _, cost in columns]
    found = best_partition(NUM_JOBS, sets, excess, most)
    least = cheapest(sets, excess)
    if found is None:
        assert least >= most
        return
    assert sorted(job for n in found for job in sets[n]) == list(range(NUM_JOBS))
    assert sum(excess[n] for n in found) == least < most


def test_a_job_that_no_set_serves_leaves_no_choice():
    assert best_partition(2, [[0]], [0.0], 1.0) is None
