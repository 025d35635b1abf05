"""Functions in processes of their own: imported once, and never the worse for earlier calls."""

import os
import signal
import subprocess
import sys
import threading
import time
from functools import partial

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
    """The process that loaded the function; a fork of it answers."""
    return os.getppid()


def answerer(_call):
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
    os.kill(int(first.value), signal.SIGKILL)
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
@pytest.mark.parametrize(
    ("call", "third"),
    [
        ("eat", CallEnd.AT_LIMIT),
        ("hang", CallEnd.TIMED_OUT),
        # Somebody else may have killed it, so it is asked again, of a new process.
        ("die", CallEnd.ANSWERED),
    ],
)
def test_what_calls_come_to_does_not_depend_on_what_others_called(call, third):
    limits = ProcessLimits(wall_s=1.0, memory_bytes=4 << 30)
    for _ in range(2):
        found = called(weary, call, call, call, limits=limits)
        assert [outcome.value for outcome in found[:2]] == [1, 2]
        assert found[2].end is third


def test_each_caller_has_a_process_of_its_own():
    (first,), (second,) = called(answerer, 1), called(answerer, 2)
    assert first.value != second.value


def test_a_function_is_prepared_once_for_all_callers():
    (first,), (second,) = called(Prepared(), 1), called(Prepared(), 1)
    assert first.value == second.value != os.getpid()


class Prepared:
    """Knows the process it was prepared in."""

    pid = -1

    def prepare(self):
        self.pid = os.getpid()

    def __call__(self, _call):
        return self.pid


def test_what_fails_in_preparation_shows_in_the_calls():
    (outcome,) = called(Unprepared(), 1)
    assert (outcome.end, outcome.value) == (CallEnd.ANSWERED, 1)


class Unprepared:
    def prepare(self):
        raise ImportError

    def __call__(self, call):
        return call


def test_a_function_that_started_threads_is_loaded_anew_for_each_caller():
    function = Threaded()
    (first,), (second,) = called(function, 1), called(function, 2)
    assert first.value != second.value


class Threaded:
    """Starts a thread when it is loaded."""

    def __init__(self):
        threading.Thread(target=threading.Event().wait, daemon=True).start()

    def __reduce__(self):
        return Threaded, ()

    def __call__(self, _call):
        return os.getpid()


@pytest.mark.parametrize("ending", [signal.SIGKILL, signal.SIGTERM, 3])
def test_how_a_process_ended_is_told(ending):
    (outcome,) = called(partial(end, ending), 1)
    status = -ending if isinstance(ending, signal.Signals) else ending
    assert outcome.end is CallEnd.AT_LIMIT
    assert outcome.reason == f"the process died with exit status {int(status)}"


def end(how, _call):
    if isinstance(how, signal.Signals):
        os.kill(os.getpid(), how)
        time.sleep(60)
    os._exit(how)


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
