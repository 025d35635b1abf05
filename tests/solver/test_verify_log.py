"""Logs of the simulator pass the check; every kind of fault in one is found."""

from __future__ import annotations

from dataclasses import replace

import pytest

from solver.arrangements import make_cell
from solver.dispatch.rules import FirstReady
from solver.simulate import SimJob, SimOp, simulate
from solver.trace import Outcome
from solver.verify_log import verify_log
from tests.solver.sharing import COLOCATED, SPLIT, loop

JOBS = [
    replace(job, phases=tuple(replace(p, name=f"actor.{p.name}") for p in job.phases))
    for job in (loop(f"j{index}", 40 + index, 30, 10) for index in range(3))
]


def log(market=COLOCATED, **more):
    cell = make_cell(replace(market, **more), JOBS)
    return simulate(cell.compile(1, 2000.0), None, FirstReady(), until_s=2000.0).records


@pytest.mark.parametrize(
    ("market", "more", "staleness"),
    [
        (COLOCATED, {}, 0),
        (COLOCATED, {"is_yielding": True}, 0),
        (SPLIT, {"max_seats": 2}, 0),
    ],
)
def test_what_the_arbiter_grants_passes(market, more, staleness):
    records = log(market, **more)
    assert len(records) > 50
    assert verify_log(records, max_staleness=staleness).violations == ()


def test_a_gang_passes_where_it_has_its_groups_together():
    ops = (SimOp("train", 5.0, 1.0, ("g", "h")), SimOp("rollout", 3.0, 0.0, ("g",)))
    jobs = [SimJob(name, ops, 5) for name in "ab"]
    records = simulate(jobs, None, FirstReady()).records
    assert verify_log(records).is_valid
    at = next(i for i, record in enumerate(records) if record.op == "train")
    late = replace(records[at], ended_s=records[at].ended_s - 2.0)
    found = verify_log([*records[:at], late, *records[at + 1 :]])
    assert any("a gang has all or none" in line for line in found.violations)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda r: {"ready_s": r.started_s + 1.0}, "ready at"),
        (lambda r: {"ended_s": r.started_s - 1.0}, "before it begins"),
        (lambda r: {"swap_s": r.held_s + 1.0}, "switches for"),
        (lambda r: {"ended_s": r.ended_s + 20.0}, "which op"),
        (lambda r: {"iteration": r.iteration - 1, "version": r.version - 1}, "nothing of the job"),
        (lambda r: {"version": r.version - 1}, "samples with version"),
        (lambda r: {"version": r.version + 1}, "samples with version"),
    ],
)
def test_a_changed_lease_is_found(change, words):
    records = log()
    at = next(i for i, r in enumerate(records) if r.op == "actor.rollout" and r.iteration == 3)
    changed = replace(records[at], **change(records[at]))
    found = verify_log([*records[:at], changed, *records[at + 1 :]], max_staleness=0)
    assert any(words in line for line in found.violations)


def test_what_was_lost_may_be_done_again():
    records = log()
    first = next(r for r in records if r.op == "actor.train" and r.iteration == 1)
    mine = [r for r in records if r.job == first.job and r.started_s <= first.started_s]
    end = mine[-1].ended_s
    lost = replace(first, iteration=2, started_s=end, ended_s=end + 1, outcome=Outcome.LOST)
    again = replace(first, ready_s=end + 2, started_s=end + 2, ended_s=end + 3)
    assert verify_log([*mine, lost, again]).is_valid
    assert not verify_log([*mine, again]).is_valid
