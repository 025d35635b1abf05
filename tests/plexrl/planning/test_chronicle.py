"""The history of solves is bounded by solves and by the jobs in them, and always has the last."""

from dataclasses import replace

import pytest

from plexrl.planning import chronicle
from plexrl.planning.chronicle import Chronicle
from plexrl.planning.proposals import Proposal
from solver.dispatch.events import DispatchPlan
from tests.plexrl.planning.test_planning_loop import job, planner_with


def remembered(num_jobs, count):
    planner = planner_with(*(job(f"j{n}") for n in range(num_jobs)))
    request = planner.request("period", 0.0)
    told = Chronicle()
    for number in range(count):
        told.add(Proposal(replace(request, number=number), "none", 0.0, DispatchPlan()), 0.0)
    assert told.num_solves == count
    return [solve.proposal.request.number for solve in told.solves]


def test_few_jobs_leave_room_for_many_solves(monkeypatch):
    monkeypatch.setattr(chronicle, "MAX_SOLVES", 4)
    assert remembered(1, 6) == [2, 3, 4, 5]


@pytest.mark.parametrize(("num_jobs", "kept"), [(2, [3, 4, 5]), (3, [4, 5]), (8, [5])])
def test_many_jobs_leave_room_for_fewer(monkeypatch, num_jobs, kept):
    monkeypatch.setattr(chronicle, "MAX_PLANNED_JOBS", 7)
    assert remembered(num_jobs, 6) == kept
