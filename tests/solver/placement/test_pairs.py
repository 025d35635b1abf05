from hypothesis import given, settings
from hypothesis import strategies as st

from solver.bounds import cycle_floor_ticks, cycle_limit_ticks
from solver.placement.pairs import impossible_pairs
from tests.solver.instances import best_cycle, job, jobs_of_one_group, one_group


@given(jobs_of_one_group(max_jobs=2, max_ops=3), st.sampled_from([1000, 1100, 1300, 1600]))
@settings(max_examples=60)
def test_a_pair_is_impossible_if_its_best_cycle_is_too_long(jobs, limit):
    tight = tuple(
        job(j.id, *((o.duration_ticks, o.wait_ticks, o.switch_ticks) for o in j.ops), limit=limit)
        for j in jobs
    )
    if len(tight) < 2:
        return
    longest = cycle_limit_ticks(tight)
    found = bool(impossible_pairs(one_group(*tight))[0, 1])
    if cycle_floor_ticks(tight) <= longest:
        assert found == (best_cycle(tight) > longest)


def test_loops_that_do_not_interlock_are_an_impossible_pair():
    a = job("a", (30, 20, 0), (30, 20, 0), limit=1000)
    b = job("b", (25, 10, 0), (15, 50, 0), limit=1000)
    c = job("c", (10, 90, 0), limit=1000)
    table = impossible_pairs(one_group(a, b, c))
    assert table[0, 1]
    assert table[1, 0]
    assert not table[0, 2]
