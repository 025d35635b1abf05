"""The benchmark `saving` gives the figures it promises, on suites small enough for a test."""

from __future__ import annotations

import pytest

from benchmarks.saving_cases import (
    Size,
    colocated_case,
    limit,
    plan_ours,
    pool_case,
    rollmux_case,
    saving_vs_async,
    score_policy,
)
from plexrl.cli.shapes import published_shapes
from solver.policies import POLICIES

TINY = Size(seeds=(0,), cycles=12, peer_cycles=6, steps=3, share_of_jobs=0.01)
SHAPES = published_shapes()
CASES = [
    pool_case(SHAPES, "235B", 4),
    rollmux_case(SHAPES, is_uniform=False),
    colocated_case(SHAPES, "agentic"),
]


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_ours_saves_more_than_dedicated_groups_and_less_than_the_limit(case):
    planned = plan_ours(case, TINY, 0)
    saved = planned.score.saving(case.own_price)
    assert 0 < saved < limit(case, TINY.jobs(case, 0), case.own_price)
    assert planned.score.num_jobs == len(TINY.jobs(case, 0))
    assert saving_vs_async(case, TINY, 0) < 1


@pytest.mark.slow
def test_the_measure_by_price_is_no_smaller_than_the_one_by_work():
    case = CASES[1]
    score = plan_ours(case, TINY, 0, is_by_price=True).score
    assert 1 - score.price / (case.own_price * score.num_jobs) >= score.saving(case.own_price)


def test_prices_of_a_pool_are_those_of_its_accelerators():
    assert CASES[0].prices == {"split": 96 + 32, "colocated": 96}
    assert CASES[1].prices["colocated"] / CASES[1].prices["split"] == pytest.approx(0.74, abs=0.01)


@pytest.mark.slow
def test_every_policy_is_scored_on_the_same_jobs():
    case = CASES[2]
    counts = {score_policy(case, TINY, 0, policy).num_jobs for policy in POLICIES}
    assert counts == {len(TINY.jobs(case, 0))}
