from dataclasses import replace

import pytest

import solver
from solver import Bound, BoundClass, Group, Problem, Proof, Recheck, recheck
from tests.solver.instances import job, one_group, three_loops

PROBLEMS = [
    one_group(*three_loops()),
    Problem((Group("g", 20), Group("h", 20), Group("i", 100, price=2)), three_loops()),
    Problem((Group("g", 20, price=3), Group("h", 20)), (job("a", (5, 9, 1)), job("b", (7, 0, 1)))),
]


def _bounds(problem):
    return solver.plan(problem, budget_s=0.0).bounds


@pytest.mark.parametrize("problem", PROBLEMS)
def test_every_bound_with_a_proof_that_can_be_followed_holds(problem):
    found = {bound.proof: recheck(problem, bound) for bound in _bounds(problem)}
    assert found.pop(Proof.SEARCH, Recheck.UNCHECKED) is Recheck.UNCHECKED
    assert {Proof.LOAD, Proof.CHAIN} <= set(found)
    assert set(found.values()) == {Recheck.HOLDS}


@pytest.mark.parametrize("problem", PROBLEMS)
def test_a_bound_one_tick_too_high_is_refuted(problem):
    for bound in _bounds(problem):
        if bound.proof is not Proof.SEARCH:
            raised = replace(bound, ticks=bound.ticks + 1)
            assert recheck(problem, raised) is Recheck.REFUTED


@pytest.mark.parametrize("proof", [Proof.CHAIN, Proof.ENUMERATION])
def test_a_bound_that_claims_a_wider_class_is_refuted(proof):
    bound = next(bound for bound in _bounds(PROBLEMS[1]) if bound.proof is proof)
    widened = replace(bound, bound_class=BoundClass.UNIVERSAL)
    assert recheck(PROBLEMS[1], widened) is Recheck.REFUTED


def test_switches_are_in_no_universal_bound():
    loads = [bound for bound in _bounds(PROBLEMS[0]) if bound.proof is Proof.LOAD]
    with_switches = max(loads, key=lambda bound: bound.ticks)
    widened = replace(with_switches, bound_class=BoundClass.UNIVERSAL)
    assert recheck(PROBLEMS[0], widened) is Recheck.REFUTED


def test_too_many_placements_to_enumerate_are_left_unchecked():
    jobs = tuple(job(f"j{i}", (5, 9, 1), memory=1) for i in range(12))
    problem = Problem((Group("g", 20), Group("h", 20), Group("i", 20)), jobs)
    bound = Bound(60, BoundClass.COMMON_CYCLE, Proof.ENUMERATION)
    assert recheck(problem, bound) is Recheck.UNCHECKED
