"""Certificates hold as made, and no changed one that says more does."""

from dataclasses import replace

import numpy as np
import pytest

from solver.bounds import Bound, BoundClass, Proof
from solver.certificate import Certificate, certified_value
from solver.objective import Objective
from solver.placement.duals import Pricer
from solver.recheck import Recheck, recheck
from tests.solver.packings import random_pool

PROBLEM = random_pool(20, 5, weights=(1, 2))
DUALS = {
    Objective.GROUPS: 300_000,
    Objective.COST: 300_000,
    Objective.ROUND: 120_000_000,
    Objective.GPU_HOURS: 10_000,
    Objective.THROUGHPUT: -1_200_000,
}


def _bound(objective, bound_class=BoundClass.COMMON_CYCLE, theta=200_000):
    """A bound by duals that have nothing to do with the problem, repaired."""
    pricer = Pricer.of(PROBLEM, objective, bound_class)
    duals = np.full(len(PROBLEM.jobs), DUALS[objective], np.int64)
    duals += np.arange(duals.size) % 7
    charges = np.zeros(len(pricer.kinds), np.int64)
    theta = theta if objective is Objective.GPU_HOURS else 0
    priced = pricer.price(duals, charges, theta)
    certificate = pricer.certify(duals, charges, priced, theta)
    value = certified_value(PROBLEM, certificate)
    return Bound(value, bound_class, Proof.DUALS, objective, certificate)


@pytest.mark.parametrize("objective", list(Objective))
def test_repaired_duals_hold(objective):
    assert recheck(PROBLEM, _bound(objective)) is Recheck.HOLDS


@pytest.mark.parametrize("objective", [Objective.GROUPS, Objective.COST])
def test_universal_duals_hold_and_say_no_more_than_those_of_common_cycles(objective):
    wide, narrow = _bound(objective, BoundClass.UNIVERSAL), _bound(objective)
    assert recheck(PROBLEM, wide) is Recheck.HOLDS
    widened = replace(narrow, bound_class=BoundClass.UNIVERSAL)
    assert recheck(PROBLEM, replace(wide, bound_class=BoundClass.COMMON_CYCLE)) is Recheck.HOLDS
    assert narrow.ticks == wide.ticks or recheck(PROBLEM, widened) is Recheck.REFUTED


@pytest.mark.parametrize("objective", list(Objective))
def test_a_value_above_the_certified_one_is_refuted(objective):
    bound = _bound(objective)
    assert recheck(PROBLEM, replace(bound, ticks=bound.ticks + 1)) is Recheck.REFUTED


def _mutations(certificate):
    first, *_ = certificate.duals
    raised = {**certificate.duals, first: certificate.duals[first] + 10**9}
    yield "a dual raised", replace(certificate, duals=raised)
    fewer = {name: dual for name, dual in certificate.duals.items() if name != first}
    yield "a job left out", replace(certificate, duals=fewer)
    yield "a job made up", replace(certificate, duals={**certificate.duals, "ghost": 10**9})
    yield "a negative charge", replace(certificate, charges={"g0": -1})
    yield "a charge of no group", replace(certificate, charges={"nowhere": 5})
    yield (
        "all duals doubled",
        replace(
            certificate, duals={name: 2 * abs(dual) for name, dual in certificate.duals.items()}
        ),
    )


@pytest.mark.parametrize("index", range(6))
def test_a_changed_certificate_is_refuted(index):
    bound = _bound(Objective.GROUPS)
    what, changed = list(_mutations(bound.certificate))[index]
    mutated = replace(bound, certificate=changed, ticks=certified_value(PROBLEM, changed))
    assert recheck(PROBLEM, mutated) is Recheck.REFUTED, what


def test_a_certificate_of_another_objective_or_none_is_refuted():
    bound = _bound(Objective.GROUPS)
    assert recheck(PROBLEM, replace(bound, objective=Objective.COST)) is Recheck.REFUTED
    assert recheck(PROBLEM, replace(bound, certificate=None)) is Recheck.REFUTED


def test_a_certificate_survives_json():
    certificate = _bound(Objective.GPU_HOURS).certificate
    assert Certificate.from_json(certificate.to_json()) == certificate
    for broken in ({"duals": 3}, {"charges": {"g0": 1.5}}, {"theta": None}):
        with pytest.raises(ValueError, match=r"certificate"):
            Certificate.from_json(certificate.to_json() | broken)
