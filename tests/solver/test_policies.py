"""Every policy serves every job once; each does what its name says."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from solver.arrangements import make_cell
from solver.dispatch.rules import PlanOrderWithBackfill
from solver.dispatch.views import Candidate, GroupView
from solver.policies import (
    POLICIES,
    StrictOrder,
    first_ready,
    keep_group,
    pack,
    planned_order,
    random_pairs,
    rollmux_like,
    round_robin,
    shortest_first,
    smallest_share_first,
    spread,
    strict_plan,
)
from solver.scoring import score_cell, score_fleet
from solver.simulate import simulate
from solver.workloads import Phase, Role, Workload
from tests.solver.sharing import COLOCATED, POOL, SPLIT, loop

JOBS = [loop(f"j{i}", 20 + 3 * i, 10, 50, limit=1.8) for i in range(7)]


@pytest.mark.parametrize("market", [COLOCATED, SPLIT, POOL])
@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.name)
def test_every_job_is_served_once_and_fits(market, policy):
    cells = policy.place(market, JOBS, 0)
    assert sorted(job.name for cell in cells for job in cell.jobs) == [j.name for j in JOBS]
    assert all(cell.fits() for cell in cells)


def test_dedicated_groups_save_nothing_and_slow_nobody():
    (dedicated,) = (policy for policy in POLICIES if policy.name == "dedicated")
    score = score_fleet(dedicated.place(SPLIT, JOBS, 0), dedicated.dispatch, [1], cycles=10)
    assert score.saving(SPLIT.dedicated_price) == pytest.approx(0.0)
    assert score.attainment == 1.0


def test_spreading_balances_what_packing_piles_up():
    packed, level = pack(COLOCATED, JOBS, 0), spread(COLOCATED, JOBS, 0)
    assert len(level) == len(packed)
    assert max(len(c.jobs) for c in level) - min(len(c.jobs) for c in level) <= 1


def test_random_pairs_are_pairs_and_depend_on_the_seed():
    cells = random_pairs(COLOCATED, JOBS, 0)
    assert sorted(len(cell.jobs) for cell in cells) == [1, 2, 2, 2]
    assert cells != random_pairs(COLOCATED, JOBS, 1)


def test_the_conservative_policy_keeps_limits_that_pairs_at_random_break():
    tight = [loop(f"j{i}", 30 + 20 * i, 20, 30, limit=1.3) for i in range(6)]
    careful = score_fleet(rollmux_like(COLOCATED, tight, 0), round_robin, [5], cycles=30)
    careless = score_fleet(random_pairs(COLOCATED, tight, 0), round_robin, [5], cycles=30)
    assert careful.attainment == 1.0
    assert careless.attainment < 1.0


def test_memory_keeps_random_pairs_apart():
    heavy = [loop(f"j{i}", memory=600) for i in range(4)]
    cells = random_pairs(replace(COLOCATED, memory_bytes=1000), heavy, 0)
    assert [len(cell.jobs) for cell in cells] == [1, 1, 1, 1]


def test_our_dispatch_follows_a_plan_where_one_group_is_shared():
    plan, rule = planned_order(make_cell(COLOCATED, JOBS[:2]))
    assert isinstance(rule, PlanOrderWithBackfill)
    (order,) = plan.orders.values()
    assert len(order) == 4
    assert planned_order(make_cell(SPLIT, JOBS[:2]))[0].orders == {}


def test_a_strict_order_ends_and_alternates():
    cell = make_cell(COLOCATED, [loop("a", 20, 10, 30), loop("b", 20, 10, 30)])
    _, rule = strict_plan(cell)
    assert isinstance(rule, StrictOrder)
    score = score_cell(cell, strict_plan, 0, cycles=20)
    counts = [1 / period for period in score.periods_s.values()]
    assert counts[0] == pytest.approx(counts[1], rel=0.1)


def test_a_job_that_keeps_its_group_is_not_interrupted_between_ops_without_a_wait():
    phases = (
        Phase("rollout", Role.ROLLOUT, 60.0, 0.2),
        Phase("logprob", Role.TRAIN, 10.0, 0.2),
        Phase("train", Role.TRAIN, 30.0, 0.2),
    )
    cell = make_cell(POOL, [Workload(f"j{i}", phases, 2.0) for i in range(3)])

    def interruptions(dispatch):
        plan, rule = dispatch(cell)
        records = simulate(cell.compile(0, 4000.0), plan, rule, until_s=4000.0).records
        return sum(
            before.op == "logprob" and after.job != before.job
            for before, after in pairwise(records)
        )

    assert interruptions(first_ready) > 10
    assert interruptions(keep_group) == 0


def test_the_smallest_share_of_an_iteration_goes_first_not_the_shortest_op():
    cell = make_cell(COLOCATED, [loop("quick", 5, 5), loop("brief", 190, 10)])
    queue = (
        Candidate("1", "quick", "train", 5_000, 0, 0, 1, 0),
        Candidate("2", "brief", "train", 10_000, 0, 0, 1, 0),
    )

    def first(dispatch):
        _, rule = dispatch(cell)
        return rule.choose(GroupView("g", 0, 0, 0, queue, ())).id

    assert (first(shortest_first), first(smallest_share_first)) == ("1", "2")
