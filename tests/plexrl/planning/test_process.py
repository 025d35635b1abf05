"""Plans are made in a process of its own, whose end never is the end of planning."""

import os
import signal
import sys
import threading
from dataclasses import replace

import pytest

from plexrl.errors import PlexRLError
from plexrl.planning.config import PlanningConfig
from plexrl.planning.process import PlannerProcess
from plexrl.planning.proposals import solve
from tests.plexrl.planning.test_planning_loop import job, planner_with

HANGS = (sys.executable, "-S", "-c", "import signal; signal.pause()")


def request_for(*names, budget_s=0.0):
    planner = planner_with(*map(job, names), config=PlanningConfig(budget_s=budget_s))
    return planner.request("a test", 0.0)


@pytest.fixture
def process():
    process = PlannerProcess()
    yield process
    process.close()


@pytest.mark.slow
def test_the_process_plans_as_this_one_does_and_stays_until_it_is_killed(process):
    request = request_for("a", "b")
    here = solve(request)
    there = process.solve(request)
    assert (there.dispatch, there.plan, there.status) == (here.dispatch, here.plan, here.status)
    assert there.is_verified
    first = process.pid
    process.solve(request_for("a", "b", "c"))
    assert process.pid == first
    os.kill(first, signal.SIGKILL)
    kept = process.solve(request)
    assert kept.dispatch == here.dispatch
    assert kept.is_verified
    assert "the planner's process ended" in kept.note
    again = process.solve(request)
    assert again.note == here.note
    assert process.pid not in {first, None}


@pytest.mark.slow
def test_an_error_of_a_solve_is_raised_here_and_the_process_stays(process):
    broken = replace(request_for("a"), groups=None)
    with pytest.raises(PlexRLError, match=r"plan 1 could not be made:(.|\n)*TypeError"):
        process.solve(broken)
    assert process.solve(request_for("a")).is_verified


def test_a_process_that_hangs_is_killed_and_a_verified_plan_serves():
    process = PlannerProcess(HANGS, grace_s=0.02)
    proposal = process.solve(request_for("a", "b"))
    assert "the planner's process was killed after 0.02 s" in proposal.note
    assert proposal.is_verified
    assert {slot.job for slot in proposal.dispatch.orders["group-0"]} == {"a", "b"}
    assert process.pid is None
    process.close()


def test_a_process_that_cannot_be_started_leaves_the_greedy_plan():
    process = PlannerProcess(("no-such-python",))
    proposal = process.solve(request_for("a", "b"))
    assert "the planner's process did not start" in proposal.note
    assert proposal.is_verified


def test_a_request_under_way_ends_when_the_process_is_closed():
    process = PlannerProcess(HANGS)
    raised = []

    def ask():
        try:
            process.solve(request_for("a"))
        except PlexRLError as error:
            raised.append(str(error))

    thread = threading.Thread(target=ask)
    thread.start()
    while process.pid is None:
        pass
    process.close()
    thread.join(10.0)
    assert raised == ["the planner's process was closed"]
    assert process.pid is None
