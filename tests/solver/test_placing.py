"""Whole problems through column generation: optimal, verified, and proven by duals."""

import sys

import networkx as nx
import pytest

import solver
from solver import BoundClass, Group, Objective, Problem, Recheck, Source, Status, recheck
from solver.bounds import cycle_floor_ticks, cycle_limit_ticks
from solver.objective import value_of
from solver.verify import verify
from tests.solver.instances import job
from tests.solver.packings import fewest_groups, pool, random_pool


def _checked(problem, objective, **more):
    result = solver.plan(problem, objective=objective, **{"budget_s": 20.0, **more})
    assert verify(problem, result.plan).violations == ()
    assert value_of(problem, result.plan, objective) == result.value
    for bound in result.bounds:
        assert bound.ticks <= result.value
        assert recheck(problem, bound) is not Recheck.REFUTED
    return result


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_few_jobs_need_as_few_groups_as_brute_force_finds(seed):
    problem = random_pool(8 if seed < 1 else 6, seed)
    result = _checked(problem, Objective.GROUPS)
    assert result.status is Status.OPTIMAL
    assert result.value == fewest_groups(problem)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_pairs_are_chosen_as_a_matching_would(seed):
    """At two jobs a group the fewest groups are the jobs less the largest matching."""
    problem = random_pool(14, seed, max_jobs=2)
    graph = nx.Graph()
    graph.add_nodes_from(problem.jobs)
    for index, one in enumerate(problem.jobs):
        for other in problem.jobs[index + 1 :]:
            pair = (one, other)
            fits = sum(member.memory_bytes for member in pair) <= 150
            if fits and cycle_floor_ticks(pair) <= cycle_limit_ticks(pair):
                graph.add_edge(*pair)
    pairs = nx.max_weight_matching(graph, maxcardinality=True)
    result = _checked(problem, Objective.GROUPS)
    assert result.status is Status.OPTIMAL
    assert result.value == len(problem.jobs) - len(pairs)


@pytest.mark.slow
@pytest.mark.parametrize("objective", list(Objective))
def test_every_objective_is_no_worse_than_greedy_and_bounded(objective):
    problem = random_pool(10, 7, weights=(1, 3))
    greedy = value_of(problem, solver.greedy(problem), objective)
    result = _checked(problem, objective)
    assert result.value <= greedy
    assert result.gap <= 1e-5


@pytest.mark.slow
def test_forty_jobs_get_a_proven_plan_and_every_step_is_told():
    told = []
    result = _checked(random_pool(40, 1), Objective.GROUPS, on_incumbent=told.append)
    assert result.gap_in(BoundClass.COMMON_CYCLE) <= 0.1
    assert tuple(told) == result.incumbents
    assert [entry.value for entry in told] == sorted((e.value for e in told), reverse=True)


@pytest.mark.slow
def test_dear_groups_are_left_empty_and_few_groups_are_not_exceeded():
    jobs = [job(f"j{index}", (10, 90, 0), memory=40) for index in range(6)]
    groups = (Group("dear", 200, price=9), Group("a", 80), Group("b", 80), Group("c", 80))
    result = _checked(Problem(groups, tuple(jobs)), Objective.COST)
    assert result.status is Status.OPTIMAL
    assert result.value == 3
    assert "dear" not in result.plan.placement.values()


@pytest.mark.slow
def test_forbidden_pairs_and_pins_are_kept():
    jobs = (
        job("a", (10, 90, 0), forbids=("b",)),
        job("b", (10, 90, 0)),
        job("c", (10, 90, 0), pinned_group="g2"),
    )
    result = _checked(pool(*jobs), Objective.GROUPS)
    assert (result.status, result.value) == (Status.OPTIMAL, 2)
    assert result.plan.placement["c"] == "g2"


@pytest.mark.slow
@pytest.mark.parametrize("objective", [Objective.COST, Objective.GPU_HOURS])
@pytest.mark.parametrize("move_ticks", [0, 900])
def test_jobs_move_where_that_pays(objective, move_ticks):
    """Fourteen jobs of a tenth on two groups need one; moving half of them may cost more."""
    jobs = [job(f"j{index}", (50, 950, 0), memory=5, move_ticks=move_ticks) for index in range(14)]
    groups = (Group("a", 100, price=10), Group("b", 100, price=11))
    current = {entry.id: "ab"[index % 2] for index, entry in enumerate(jobs)}
    problem = Problem(groups, tuple(jobs), current, horizon_ticks=1000)
    result = _checked(problem, objective)
    moved = [name for name, group in result.plan.placement.items() if group != current[name]]
    assert len(moved) == (0 if move_ticks else 7)


def test_without_time_the_greedy_plan_serves_any_objective():
    result = solver.plan(random_pool(30, 3), objective=Objective.GROUPS, budget_s=0.0)
    assert (result.status, result.source) == (Status.OUT_OF_TIME, Source.GREEDY)
    assert result.value == len(result.plan.timelines)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("code", "said"), [("print('{}')", "answered b'{}'"), ("raise SystemExit(3)", "status 3")]
)
def test_a_child_that_makes_no_sense_leaves_the_greedy_plan(code, said):
    result = solver.plan(
        random_pool(30, 3), objective=Objective.GROUPS, command=(sys.executable, "-c", code)
    )
    assert (result.status, result.source) == (Status.UNKNOWN, Source.GREEDY)
    assert said in result.reason


STUCK = """
import signal
from solver.cpsat import child
signal.signal(signal.SIGALRM, signal.SIG_IGN)
signal.signal(signal.SIGTERM, signal.SIG_IGN)
tell = child._print
def tell_and_hang(line):
    tell(line)
    while True:
        pass
child._print = tell_and_hang
child.main()
"""


@pytest.mark.slow
def test_a_packing_that_gets_stuck_and_ignores_signals_is_killed_with_what_it_told():
    command = (sys.executable, "-P", "-c", STUCK)
    result = solver.plan(
        random_pool(30, 3), objective=Objective.GROUPS, budget_s=3.0, command=command
    )
    assert result.status is Status.OUT_OF_TIME
    assert result.plan is not None
    assert [bound.bound_class for bound in result.bounds] == [BoundClass.COMMON_CYCLE]


@pytest.mark.slow
@pytest.mark.parametrize("objective", [Objective.GROUPS, Objective.GPU_HOURS])
def test_the_same_problem_and_seed_give_the_same_plan(objective):
    first, second = (_checked(random_pool(12, 4), objective, budget_s=60.0) for _ in range(2))
    assert first.plan == second.plan
    assert first.bounds == second.bounds
