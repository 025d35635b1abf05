"""The guard against real child processes, well-behaved and not."""

import sys

import pytest

import solver
from solver.cpsat import guard
from solver.cpsat.guard import ChildEnd
from solver.cpsat.lines import Finished
from solver.cpsat.messages import (
    Found,
    Proved,
    Request,
    Task,
    read_answer,
    read_request,
    write_answer,
    write_request,
)
from solver.placement.columns import Column
from solver.result import Source, Status
from solver.timeline import greedy_timeline
from solver.verify import verify
from tests.solver.instances import contested, one_group

PROBLEM = one_group(*contested())
HINT = greedy_timeline("g", PROBLEM.jobs)

KILLED_MID_SOLVE = """
import os, signal
from solver.cpsat import child
tell = child._tell
def tell_and_die(answer, problem):
    tell(answer, problem)
    os.kill(os.getpid(), signal.SIGKILL)
child._tell = tell_and_die
child.main()
"""
HANGING = """
import signal
from solver.cpsat import child
tell = child._tell
def tell_and_hang(answer, problem):
    tell(answer, problem)
    signal.alarm(0)
    signal.pause()
child._tell = tell_and_hang
child.main()
"""
LYING = """
from dataclasses import replace
from solver.cpsat import child
from solver.cpsat.messages import Found
tell = child._tell
def lie(answer, problem):
    if isinstance(answer, Found):
        line = answer.timeline
        squeezed = tuple(replace(t, start_ticks=t.start_ticks // 2) for t in line.timings)
        half = replace(line, cycle_ticks=line.cycle_ticks // 2, timings=squeezed)
        answer = Found(answer.task, half)
    tell(answer, problem)
child._tell = lie
child.main()
"""
BABBLING = "print('no answer at all')"
SILENT = "pass"


def _command(code):
    return (sys.executable, "-P", "-c", code)


def _plan(**more):
    result = solver.plan(PROBLEM, **{"budget_s": 20.0, **more})
    assert verify(PROBLEM, result.plan).is_valid
    return result


def test_a_request_and_every_answer_survive_the_pipe():
    request = Request((Task(PROBLEM, HINT), Task(PROBLEM, None)), 12.5, 3, 1, 2**30)
    assert read_request(write_request(request)) == request
    for answer in (Found(0, HINT), Proved(1, "optimal", 7), Finished()):
        assert read_answer(write_answer(answer, PROBLEM).encode()) == answer


@pytest.mark.parametrize(
    "line", [b"", b"{", b"3", b"{}", b'{"found": true}', b'{"found": 0, "plan": 3}']
)
def test_a_line_that_is_no_answer_is_told_from_one(line):
    assert read_answer(line) is None


@pytest.mark.slow
def test_a_child_that_finishes_proves_its_timeline():
    found = []
    report = guard.solve(
        [Task(PROBLEM, HINT)], budget_s=20.0, on_found=lambda *entry: found.append(entry)
    )
    assert report.end is ChildEnd.FINISHED
    assert report.proved[0].ending == "optimal"
    assert report.timelines[0].cycle_ticks == report.proved[0].bound_ticks < HINT.cycle_ticks
    assert found[-1] == (0, report.timelines[0])


@pytest.mark.slow
def test_a_child_killed_mid_solve_leaves_its_best_timeline():
    result = _plan(command=_command(KILLED_MID_SOLVE))
    assert result.status is Status.UNKNOWN
    assert result.source is Source.CPSAT
    assert "status -9" in result.reason


@pytest.mark.slow
def test_a_child_that_hangs_is_killed_at_its_deadline():
    result = _plan(command=_command(HANGING), budget_s=3.0)
    assert result.status is Status.OUT_OF_TIME
    assert "killed at its deadline" in result.reason


@pytest.mark.slow
def test_a_child_that_lies_is_not_believed():
    result = _plan(command=_command(LYING))
    assert result.source is Source.GREEDY
    assert "failed the check" in result.reason


@pytest.mark.slow
@pytest.mark.parametrize(
    ("code", "said"), [(BABBLING, "no answer at all"), (SILENT, "no last word")]
)
def test_a_child_that_makes_no_sense_leaves_the_greedy_plan(code, said):
    result = _plan(command=_command(code))
    assert (result.status, result.source) == (Status.UNKNOWN, Source.GREEDY)
    assert said in result.reason


@pytest.mark.slow
def test_a_child_without_memory_leaves_the_greedy_plan():
    result = _plan(memory_bytes=64 * 2**20)
    assert (result.status, result.source) == (Status.UNKNOWN, Source.GREEDY)
    assert "ended with status" in result.reason


def test_a_child_that_cannot_start_leaves_the_greedy_plan():
    result = _plan(command=("no-such-program-anywhere",))
    assert (result.status, result.source) == (Status.UNKNOWN, Source.GREEDY)
    assert "did not start" in result.reason


COLUMNS = [
    Column(0, jobs, cost)
    for jobs, cost in [((0,), 5), ((1,), 5), ((2,), 5), ((0, 1), 7), ((1, 2), 6), ((0, 1, 2), 13)]
]


def test_the_cheapest_choice_of_columns_comes_from_the_child():
    found = guard.choose(3, COLUMNS, (0, 1, 2), budget_s=20.0, deterministic_s=1.0)
    assert sorted(found) == [0, 4]


@pytest.mark.parametrize(
    "line", ['{"chosen": [0, 1]}', '{"chosen": [0, 0, 4]}', '{"chosen": [99]}', "nonsense"]
)
def test_a_choice_that_is_none_is_not_believed(line):
    command = (sys.executable, "-c", f"print({line!r}); print('{{\"finished\": true}}')")
    assert guard.choose(3, COLUMNS, (), budget_s=5.0, deterministic_s=1.0, command=command) is None


@pytest.mark.slow
def test_a_choice_that_hangs_is_killed_with_what_it_told():
    code = "print('{\"chosen\": [5]}', flush=True); import time; time.sleep(600)"
    command = (sys.executable, "-c", code)
    found = guard.choose(3, COLUMNS, (), budget_s=1.0, deterministic_s=1.0, command=command)
    assert found == (5,)
