"""Child processes that answer: killed ones are replaced, limits hold, nothing is left running."""

import os
import select
import signal
import subprocess
import sys

import pytest

from dataflow import processes
from dataflow.errors import DataError, NotReadyError
from dataflow.processes import AnsweringProcess, ProcessLimits, Silence, ask_all

_ECHO = """
import os, sys
print("ready", flush=True)
for line in sys.stdin:
    print(line, end="", flush=True)
"""
_SUICIDAL = _ECHO.replace("    print", "    line != 'die\\n' or os.abort()\n    print")
LIMITS = ProcessLimits(wall_s=30.0)


def command(program):
    return [sys.executable, "-S", "-I", "-c", program]


def start(program=_ECHO, limits=LIMITS):
    return AnsweringProcess(command(program), limits)


def kill(process):
    os.kill(process.pid, signal.SIGKILL)
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)


def test_a_process_that_somebody_kills_is_replaced_and_its_request_repeated():
    started = []

    def started_and_killed():
        started.append(start())
        if len(started) == 1:
            kill(started[0])
        return started[-1]

    assert list(ask_all(started_and_killed, [b"a\n", b"b\n"])) == [b"a", b"b"]
    assert len(started) == 2


def test_a_request_that_kills_its_process_twice_has_no_answer():
    answers = list(ask_all(lambda: start(_SUICIDAL), [b"a\n", b"die\n", b"b\n"]))
    assert [answers[0], answers[2]] == [b"a", b"b"]
    assert isinstance(answers[1], Silence)
    assert not answers[1].is_at_limit
    assert answers[1].reason == f"the process died with exit status {-signal.SIGABRT}"


def test_a_process_that_stops_answering_is_killed_at_its_limit():
    deaf = _ECHO.replace('print(line, end="", flush=True)', "pass")
    with start(deaf, ProcessLimits(wall_s=0.05)) as process:
        answer = process.ask(b"a\n")
        assert answer == Silence("killed after 0.05 s", is_at_limit=True)
        assert not process.is_alive


def test_two_false_starts_are_an_error():
    with pytest.raises(NotReadyError, match="did not get ready: the process died"):
        list(ask_all(lambda: start("raise SystemExit(3)"), [b"a\n"]))


def test_one_that_does_not_read_is_killed_at_its_limit():
    with start('print("ready", flush=True); import time; time.sleep(60)') as process:
        process._limits = ProcessLimits(wall_s=0.05)
        assert process.ask(b"a" * (1 << 20)) == Silence("killed after 0.05 s", is_at_limit=True)
        assert not process.is_alive


def test_one_that_closes_its_output_and_lives_on_is_killed(monkeypatch):
    monkeypatch.setattr(processes, "_END_TIMEOUT_S", 0.05)
    mute = "import os, time; print('ready', flush=True); os.close(1); time.sleep(60)"
    with start(mute) as process:
        assert process.ask(b"a\n").reason == f"the process died with exit status {-signal.SIGKILL}"
        assert not process.is_alive


def test_a_process_leads_a_group_but_stays_in_the_session_so_that_its_niceness_counts():
    with start() as process:
        assert os.getpgid(process.pid) == process.pid
        assert os.getsid(process.pid) == os.getsid(0)


def test_what_a_process_started_ends_with_it():
    forks = "import os, time; child = os.fork(); child and print(child, flush=True); time.sleep(60)"
    read, write = os.pipe()
    os.set_inheritable(write, True)
    process = subprocess.Popen(
        command(forks), stdout=subprocess.PIPE, process_group=0, pass_fds=(write,)
    )
    os.close(write)
    with process:
        assert int(process.stdout.readline()) > 0
        processes.kill_group(process)
        # Of all that held the other end nobody is left.
        assert select.select([read], [], [], 30.0)[0]
        assert os.read(read, 1) == b""
    os.close(read)


@pytest.mark.parametrize(
    "limits", [{"wall_s": 0}, {"wall_s": -1.0}, {"cpu_s": -1}, {"memory_bytes": 100}]
)
def test_limits_that_leave_nothing_are_refused(limits):
    with pytest.raises(DataError, match=f"{next(iter(limits))}=.* could never answer; give a"):
        ProcessLimits(**limits)
