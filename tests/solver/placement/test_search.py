from dataclasses import replace
from itertools import product

from hypothesis import given, settings
from hypothesis import strategies as st

from solver.bounds import cycle_floor_ticks, cycle_limit_ticks
from solver.placement.search import search_placement
from solver.problem import Group, Problem
from tests.solver.instances import job, jobs_of_one_group, three_loops

GROUPS = (Group("g", 25), Group("h", 25), Group("i", 100, price=2))


def _cheapest(problem):
    """Least price × floor over all placements, with what moves cost, or None."""
    current = problem.current or {}
    costs = []
    for choice in product(problem.groups, repeat=len(problem.jobs)):
        cost = 0
        for group in problem.groups:
            here = [j for j, at in zip(problem.jobs, choice, strict=True) if at is group]
            if not here:
                continue
            floor = cycle_floor_ticks(here)
            fits = sum(j.memory_bytes for j in here) <= group.memory_bytes
            if not fits or floor > cycle_limit_ticks(here):
                break
            moved = sum(j.move_ticks for j in here if current.get(j.id) not in {None, group.id})
            lost = moved * 1_000_000 // problem.horizon_ticks
            cost += group.price * floor * (1_000_000 + lost)
        else:
            costs.append(cost // 1_000_000)
    return min(costs, default=None)


@given(jobs_of_one_group(max_jobs=4, max_ops=2), st.sampled_from([1000, 1300, 2000, 5000]))
@settings(max_examples=40)
def test_the_search_finds_the_cheapest_placement(jobs, limit):
    tight = tuple(
        job(j.id, *((o.duration_ticks, o.wait_ticks, o.switch_ticks) for o in j.ops), limit=limit)
        for j in jobs
    )
    problem = Problem(GROUPS, tight)
    search = search_placement(problem)
    assert search.is_complete
    assert search.floor_ticks == _cheapest(problem)


@given(jobs_of_one_group(max_jobs=4, max_ops=2), st.data())
@settings(max_examples=40)
def test_what_moves_cost_is_weighed(jobs, data):
    moving = tuple(replace(j, move_ticks=data.draw(st.sampled_from([0, 100, 400]))) for j in jobs)
    current = {j.id: data.draw(st.sampled_from("ghi")) for j in jobs if data.draw(st.booleans())}
    problem = Problem(GROUPS, moving, current, horizon_ticks=1000)
    assert search_placement(problem).floor_ticks == _cheapest(problem)


def test_a_search_cut_short_says_so():
    search = search_placement(Problem(GROUPS, three_loops()), max_nodes=1)
    assert not search.is_complete


def test_without_any_placement_the_search_is_complete_and_empty():
    jobs = tuple(job(f"j{i}", (10, 0, 0), limit=1000) for i in range(4))
    search = search_placement(Problem(GROUPS, jobs))
    assert (search.is_complete, search.placed, search.floor_ticks) == (True, None, None)
