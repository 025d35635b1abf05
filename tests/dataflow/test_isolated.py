"""Functions in processes of their own: imported once, and never the worse for earlier calls."""

import os
import subprocess
import sys
import time
from dataclasses import replace

import pytest

from dataflow import isolated
from dataflow.errors import NotReadyError
from dataflow.idle_processes import IdleProcesses
from dataflow.isolated import CallEnd, Kind, call_each
from dataflow.processes import AnsweringProcess, ProcessLimits

LIMITS = ProcessLimits(wall_s=30.0, memory_bytes=4 << 30)


@pytest.fixture(autouse=True)
def idle(monkeypatch):
    """Idle processes of this test alone."""
    found = IdleProcesses()
    monkeypatch.setattr(isolated, "_IDLE", found)
    yield found
    found.close()


def whoami(_call):
    return os.getpid()


def called(function, *calls, limits=LIMITS, kind=Kind.NUMBER):
    return list(call_each(function, [(call,) for call in calls], limits, kind))


def test_the_next_who_calls_the_same_function_finds_its_process():
    (first,), (second,) = called(whoami, 1), called(whoami, 2)
    assert first.value == second.value != os.getpid()
    (other,) = called(whoami, 1, limits=ProcessLimits(wall_s=29.0, memory_bytes=4 << 30))
    assert other.value != first.value


def test_what_is_not_called_to_its_end_leaves_no_process(idle):
    outcomes = call_each(whoami, [(1,), (2,)], LIMITS, Kind.NUMBER)
    pid = int(next(outcomes).value)
    outcomes.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    assert not idle._found


def test_a_process_that_somebody_killed_meanwhile_is_replaced():
    (first,) = called(whoami, 1)
    os.kill(int(first.value), 9)
    (second,) = called(whoami, 1)
    assert (second.end, second.value != first.value) == (CallEnd.ANSWERED, True)


CALLS = []


def weary(call):
    """A function that fails the third call of its process, in its own way."""
    CALLS.append(call)
    if len(CALLS) == 3:
        if call == "hang":
            time.sleep(60)
        if call == "die":
            os._exit(1)
        raise MemoryError
    return len(CALLS)


@pytest.mark.slow
@pytest.mark.parametrize("call", ["eat", "die", "hang"])
def test_a_failure_that_calls_before_may_have_caused_is_tried_again(call):
    limits = ProcessLimits(wall_s=1.0, memory_bytes=4 << 30)
    assert [o.value for o in called(weary, call, call, limits=limits)] == [1, 2]
    # Of a process that served nobody before it is the call's own; only a death is tried again.
    assert [o.value for o in called(weary, call, limits=limits)] == [1]
    new = called(weary, call, call, call, limits=replace(limits, wall_s=1.1))
    assert (new[2].end is CallEnd.ANSWERED) == (call == "die")


def test_a_function_that_cannot_be_loaded_is_told():
    with pytest.raises(NotReadyError):
        called(Unloadable(), 1)


class Unloadable:
    def __call__(self, _call):
        raise NotImplementedError

    def __reduce__(self):
        return __import__, ("no_such_module_anywhere",)


def started():
    process = AnsweringProcess(["sh", "-c", "echo ready; exec cat"], LIMITS)
    return process, process._child


def test_a_process_that_nobody_asks_for_ends_by_itself():
    idle = IdleProcesses(idle_s=0.0)
    process, child = started()
    idle.give("a", process)
    assert child.wait(30) != 0
    assert idle.take("a") is None


def test_the_oldest_makes_room():
    idle = IdleProcesses(most=1)
    (old, old_child), (new, new_child) = started(), started()
    idle.give("a", old)
    idle.give("b", new)
    assert old_child.wait(30) != 0
    assert idle.take("a") is None
    assert idle.take("b") is new
    idle.give("b", new)
    idle.close()
    assert new_child.wait(30) != 0


@pytest.mark.slow
def test_idle_processes_end_with_their_parent():
    program = (
        "from tests.dataflow.test_isolated import called, whoami\n"
        "print(int(called(whoami, 1)[0].value))"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stderr == ""
    with pytest.raises(ProcessLookupError):
        os.kill(int(done.stdout), 0)
