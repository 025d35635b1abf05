"""The benchmark `solver` on its smallest sizes: peers beside ours, brute force agrees."""

from __future__ import annotations

import pytest

from benchmarks.brute_force import fewest_groups, has_cycle
from benchmarks.scenarios import solver as scenario
from plexrl.cli.shapes import published_shapes
from tests.solver.packings import fewest_groups as counted_groups
from tests.solver.packings import random_pool

SHAPES = published_shapes()


@pytest.mark.slow
def test_two_ways_to_count_the_fewest_groups_agree():
    for seed in range(3):
        problem = random_pool(5, seed)
        assert fewest_groups(problem) == counted_groups(problem)


@pytest.mark.slow
def test_few_jobs_are_proven_and_need_as_few_groups_as_brute_force_finds():
    said = []
    figures = scenario._prove(SHAPES, 1, said.append)
    figures |= scenario._equal_brute_force(SHAPES, 1, said.append)
    assert figures["proven_optimal_13_jobs_fraction"] == 1
    assert figures["equal_to_brute_force_fraction"] == 1
    assert len(said) == 2


def test_groups_of_a_rule_that_knows_no_switches_are_checked_beside_it():
    figures = scenario._rollmux_like(SHAPES, "memory", 8)
    assert figures["groups_rollmux_like_memory_8"] < 8
    problem = scenario.problem_of(SHAPES, "mixed", 8)
    assert not has_cycle(problem.jobs)
