"""A function of somebody's own in a process that can be killed: it may stop no job."""

from __future__ import annotations

import json
import struct
import sys
from collections.abc import Callable, Generator, Hashable, Sequence
from contextlib import closing
from dataclasses import dataclass
from enum import StrEnum
from functools import partial

import cloudpickle

from dataflow.idle_processes import IdleProcesses
from dataflow.processes import AnsweringProcess, ProcessLimits, Silence, ask_all

_SERVER = r"""
import contextlib, json, os, pickle, resource, select, signal, struct, sys, threading, warnings
memory = int(sys.argv[1])
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
sys.path[:0] = json.loads(sys.argv[2])
out = os.fdopen(os.dup(1), "wb", buffering=0)
os.dup2(2, 1)
def leave_with_parent():
    gone = select.poll()
    gone.register(0, 0)
    gone.poll()
    os._exit(0)
def watch():
    threading.Thread(target=leave_with_parent, daemon=True).start()
def exactly(size):
    # Not a byte further: what follows may be for another process.
    found = bytearray()
    while len(found) < size:
        more = os.read(0, size - len(found))
        if not more:
            os._exit(0)
        found += more
    return bytes(found)
def read():
    return pickle.loads(exactly(struct.unpack("<Q", exactly(8))[0]))
def number(value):
    if isinstance(value, (str, bytes)):
        raise TypeError("it gave %.100r, which is no number" % (value,))
    return float(value)
convert = {"number": number, "text": str}[sys.argv[3]]
def serve(request):
    me = os.getpid()
    while request is not None:
        try:
            answer = {"value": convert(function(*request))}
        except MemoryError:
            answer = {"at_limit": "MemoryError: it took more than %d bytes" % memory}
        except BaseException as error:
            answer = {"raised": (type(error).__name__ + ": " + str(error))[:1000]}
        if os.getpid() != me:
            # A fork of the function that came back answers nobody.
            os._exit(0)
        out.write(json.dumps(answer).encode() + b"\n")
        request = read()
    os._exit(0)
def can_fork():
    # Threads that a library started would be missing in the fork, and waited for.
    tasks = "/proc/self/task"
    return os.path.isdir(tasks) and len(os.listdir(tasks)) == 2
def end_like(status):
    if status > 0:
        os._exit(status)
    if status < 0:
        with contextlib.suppress(OSError):
            signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
watch()
function, me = read(), os.getpid()
with contextlib.suppress(Exception):
    # What is wrong shows in every call.
    getattr(function, "prepare", lambda: None)()
resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
warnings.simplefilter("ignore", DeprecationWarning)
out.write(b'{"ready": true}\n')
while True:
    request = read()
    child = os.fork() if can_fork() else 0
    if child:
        end_like(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    else:
        if os.getpid() != me:
            watch()
        serve(request)
"""
"""Loads a function and has a fork of itself call it for each caller, until that lets go (None):
every caller finds the function as it was loaded, whatever others called it with."""

_IDLE = IdleProcesses()


class Kind(StrEnum):
    """What a function returns."""

    NUMBER = "number"
    TEXT = "text"
    """Anything, as `str` has it."""


class CallEnd(StrEnum):
    """How a call ended."""

    ANSWERED = "answered"
    RAISED = "raised"
    AT_LIMIT = "at_limit"
    """It took more memory than it may, or its process died."""
    TIMED_OUT = "timed_out"
    """Its process was killed at a time limit."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one call."""

    end: CallEnd
    value: str | float = ""
    """What the function returned, if it did."""
    reason: str = ""
    """Why there is no value."""


def call_each(
    function: Callable[..., object],
    requests: Sequence[tuple[object, ...]],
    limits: ProcessLimits,
    kind: Kind,
) -> Generator[Outcome]:
    """Outcomes of calls, in their order; as many processes as calls kill, plus one.

    What the function imports is imported once: its process waits a minute for the next who calls
    the same function, with the same limits. The calls of each find it as it was loaded, so that
    what they come to does not depend on those before.

    Parameters
    ----------
    function
        Travels to the process by cloudpickle. Its method `prepare`, if it has one, is called once
        when it is loaded, and does what is the same for all calls, such as imports.
    requests
        Arguments of each call.
    limits
        What one call may use.
    kind
        What it returns.

    Raises
    ------
    NotReadyError
        Its process does not get ready: something that it imports is not there.
    """
    payload = _frame(function)
    key = payload, limits, kind
    answers = ask_all(
        lambda: _IDLE.take(key) or _start(payload, limits, kind),
        [_frame(request) for request in requests],
        keep=partial(_keep, key),
    )
    with closing(answers):
        yield from map(_outcome, answers)


def unanswered(silence: Silence) -> Outcome:
    """The outcome of a call that its process did not survive."""
    end = CallEnd.TIMED_OUT if silence.is_at_limit else CallEnd.AT_LIMIT
    return Outcome(end, reason=silence.reason)


def _outcome(line: bytes | Silence) -> Outcome:
    if isinstance(line, Silence):
        return unanswered(line)
    answer = json.loads(line)
    if "value" in answer:
        return Outcome(CallEnd.ANSWERED, answer["value"])
    if "at_limit" in answer:
        return Outcome(CallEnd.AT_LIMIT, reason=answer["at_limit"])
    return Outcome(CallEnd.RAISED, reason=answer["raised"])


def _start(function: bytes, limits: ProcessLimits, kind: Kind) -> AnsweringProcess:
    arguments = [str(limits.memory_bytes), json.dumps(sys.path), str(kind)]
    return AnsweringProcess([sys.executable, "-c", _SERVER, *arguments], limits, greeting=function)


def _keep(key: Hashable, process: AnsweringProcess) -> None:
    """Keep a process for the next who calls the same function."""
    if process.tell(_frame(None)):
        _IDLE.give(key, process)
    else:
        process.close()


def _frame(value: object) -> bytes:
    payload: bytes = cloudpickle.dumps(value)
    return struct.pack("<Q", len(payload)) + payload
