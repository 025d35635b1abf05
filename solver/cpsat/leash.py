"""Runs the solver's child process: feeds it, reads its lines, and kills it at its deadline.

Whatever the child does (finish, hang, crash, print garbage), `run_child` returns in time and says
how it ended. A `subprocess` rather than a `multiprocessing` one, since callers live in daemonic
processes, which may have no children of that kind.
"""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import IO

MAX_OUTPUT_BYTES = 256 * 2**20
"""A child that prints more is out of its mind and is killed."""
_CHUNK_BYTES = 2**16


class ChildEnd(StrEnum):
    """How the child ended."""

    FINISHED = "finished"
    KILLED = "killed"
    """It was still at it at the hard deadline."""
    CRASHED = "crashed"
    """It ended with a non-zero status or of a signal, or could not be started."""
    GARBLED = "garbled"
    """It printed something that is no answer, or ended without saying that it finished."""


class Verdict(StrEnum):
    """What a line of the child is."""

    ANSWER = "answer"
    LAST = "last"
    """The answer that it finished."""
    GARBAGE = "garbage"


Take = Callable[[bytes], Verdict]


@dataclass(slots=True)
class _Inbox:
    """Answers so far."""

    take_line: Take
    is_finished: bool = False
    garbage: bytes | None = None

    def take(self, line: bytes) -> None:
        match self.take_line(line):
            case Verdict.LAST:
                self.is_finished = True
            case Verdict.GARBAGE:
                self.garbage = self.garbage or line


def run_child(
    command: Sequence[str], request: bytes, deadline: float, take: Take
) -> tuple[ChildEnd, str]:
    """Give a child its request and its lines to `take`; how it ended, in two ways.

    Parameters
    ----------
    command
        Command of the child.
    request
        What it reads from its input.
    deadline
        When it is killed, on the monotonic clock in seconds.
    take
        Told each line at once; says what it was.
    """
    try:
        child = subprocess.Popen(
            list(command),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=child_environment(),
            # No session of its own: Linux would take it for a group of its own and pass over
            # its niceness (sched_autogroup).
            process_group=0,
        )
    except OSError as error:
        return ChildEnd.CRASHED, f"the solver process did not start: {error}"
    with child:
        try:
            return _converse(child, request, deadline, _Inbox(take))
        finally:
            _kill(child)


def child_environment() -> dict[str, str]:
    """The parent's, with this very `solver` first and without thread pools nobody uses."""
    here = str(Path(__file__).resolve().parents[2])
    paths = [here, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    single = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    return {**os.environ, **single, "PYTHONPATH": os.pathsep.join(paths)}


def _kill(child: subprocess.Popen[bytes]) -> None:
    """End the child with all it may have started; it leads its own process group."""
    if child.poll() is None:
        os.killpg(child.pid, signal.SIGKILL)


def _converse(
    child: subprocess.Popen[bytes], request: bytes, deadline: float, inbox: _Inbox
) -> tuple[ChildEnd, str]:
    errors = bytearray()
    rest = b""
    num_bytes = 0
    for stream, chunk in _pump(child, request, deadline):
        if stream is child.stderr:
            errors += chunk[: _CHUNK_BYTES - len(errors)]
            continue
        num_bytes += len(chunk)
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            inbox.take(line)
        if num_bytes > MAX_OUTPUT_BYTES:
            return (ChildEnd.GARBLED, "the solver process printed without end")
    if rest:
        inbox.take(rest)
    try:
        status = child.wait(timeout=max(deadline - time.monotonic(), 0.0))
    except subprocess.TimeoutExpired:
        return (ChildEnd.KILLED, "the solver process was killed at its deadline")
    return _judge(inbox, status, bytes(errors))


def _judge(inbox: _Inbox, status: int, errors: bytes) -> tuple[ChildEnd, str]:
    if status != 0:
        said = errors.decode(errors="replace").strip().splitlines()
        last = f": {said[-1]}" if said else ""
        return (ChildEnd.CRASHED, f"the solver process ended with status {status}{last}")
    if inbox.garbage is not None or not inbox.is_finished:
        found = repr(inbox.garbage[:80]) if inbox.garbage is not None else "no last word"
        return (ChildEnd.GARBLED, f"the solver process answered {found}")
    return (ChildEnd.FINISHED, "the solver process finished")


def _pump(
    child: subprocess.Popen[bytes], request: bytes, deadline: float
) -> Iterator[tuple[IO[bytes], bytes]]:
    """Feed the request and yield what comes back, until both outputs close or time is up."""
    assert child.stdin is not None
    assert child.stdout is not None
    assert child.stderr is not None
    pending = memoryview(request)
    with selectors.DefaultSelector() as selector:
        os.set_blocking(child.stdin.fileno(), False)
        selector.register(child.stdin, selectors.EVENT_WRITE)
        selector.register(child.stdout, selectors.EVENT_READ)
        selector.register(child.stderr, selectors.EVENT_READ)
        num_open = 2
        while num_open and (left_s := deadline - time.monotonic()) > 0:
            for key, _ in selector.select(left_s):
                if key.fileobj is child.stdin:
                    pending = _feed(child.stdin, pending)
                    if not pending:
                        selector.unregister(child.stdin)
                    continue
                stream = child.stdout if key.fileobj is child.stdout else child.stderr
                chunk = os.read(stream.fileno(), _CHUNK_BYTES)
                if chunk:
                    yield stream, chunk
                else:
                    selector.unregister(stream)
                    num_open -= 1


def _feed(stdin: IO[bytes], pending: memoryview) -> memoryview:
    """Write what the pipe takes; what is left, nothing once the child stopped reading."""
    try:
        return pending[os.write(stdin.fileno(), pending[:_CHUNK_BYTES]) :]
    except BlockingIOError:
        return pending
    except BrokenPipeError:
        return pending[:0]
