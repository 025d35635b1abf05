"""Keeps CP-SAT on a leash: a child process with a memory cap that is killed at its deadline.

CP-SAT is known to overrun time limits and to ignore memory limits, so neither is left to it.
Whatever the child does (finish, hang, crash, print garbage), the guard returns in time with
whatever the child had found by then, and says how it ended. A `subprocess` rather than a
`multiprocessing` one, since callers live in daemonic processes, which may have no children of
that kind.
"""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import IO

from solver.cpsat.messages import (
    Answer,
    Finished,
    Found,
    Proved,
    Request,
    Task,
    read_answer,
    write_request,
)
from solver.plan import Timeline

MEMORY_BYTES = 3 * 2**30
"""Default cap on the child's address space: OR-Tools starts in 0.4 GiB; a large timeline model
stays far below the rest."""
KILL_MARGIN_S = 0.25
"""Seconds of the budget kept between the child's own deadline and its killing."""
MAX_OUTPUT_BYTES = 64 * 2**20
"""A child that prints more is out of its mind and is killed."""
_CHUNK_BYTES = 2**16

CHILD = (sys.executable, "-P", "-m", "solver.cpsat.child")
"""Command of the child; ``-P`` keeps the working directory from shadowing anything."""

BACKGROUND_CHILD = (*CHILD, "--background")
"""The same at low priority, for solves beside running jobs."""


class ChildEnd(StrEnum):
    """How the child ended."""

    FINISHED = "finished"
    KILLED = "killed"
    """It was still at it at the hard deadline."""
    CRASHED = "crashed"
    """It ended with a non-zero status or of a signal, or could not be started."""
    GARBLED = "garbled"
    """It printed something that is no answer, or ended without saying that it finished."""


@dataclass(frozen=True, slots=True)
class Report:
    """What the guard brings back."""

    end: ChildEnd
    detail: str
    """Plain words on the end."""
    timelines: dict[int, Timeline] = field(default_factory=dict)
    """Task → its last and best timeline; the caller must verify it."""
    proved: dict[int, Proved] = field(default_factory=dict)
    """Task → what its cycle stage proved."""


OnFound = Callable[[int, Timeline], None]


def solve(
    tasks: Sequence[Task],
    *,
    budget_s: float,
    seed: int = 0,
    num_workers: int = 1,
    memory_bytes: int = MEMORY_BYTES,
    command: Sequence[str] = CHILD,
    on_found: OnFound = lambda _task, _timeline: None,
) -> Report:
    """Improve the timelines of groups within a budget, whatever CP-SAT does.

    Parameters
    ----------
    tasks
        One per group.
    budget_s
        Seconds until the child is killed, its start included.
    seed, num_workers
        For CP-SAT; one worker and the same seed give the same timelines.
    memory_bytes
        Cap on the child's address space.
    command
        Command of the child.
    on_found
        Told each better timeline at once, with the index of its task.
    """
    deadline = time.monotonic() + budget_s
    request = Request(
        tasks=tuple(tasks),
        deadline_epoch_s=time.time() + budget_s - KILL_MARGIN_S,
        seed=seed,
        num_workers=num_workers,
        memory_bytes=memory_bytes,
    )
    try:
        child = subprocess.Popen(
            list(command),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=_environment(),
            start_new_session=True,
        )
    except OSError as error:
        return Report(ChildEnd.CRASHED, f"the solver process did not start: {error}")
    with child:
        try:
            inbox = _Inbox(on_found, len(request.tasks))
            return _converse(child, write_request(request), deadline, inbox)
        finally:
            _kill(child)


def _environment() -> dict[str, str]:
    """The parent's, with this very `solver` first and without thread pools nobody uses."""
    here = str(Path(__file__).resolve().parents[2])
    paths = [here, *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    single = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    return {**os.environ, **single, "PYTHONPATH": os.pathsep.join(paths)}


def _kill(child: subprocess.Popen[bytes]) -> None:
    """End the child with all it may have started; it leads its own process group."""
    if child.poll() is None:
        os.killpg(child.pid, signal.SIGKILL)


@dataclass(slots=True)
class _Inbox:
    """Answers so far."""

    on_found: OnFound
    num_tasks: int
    timelines: dict[int, Timeline] = field(default_factory=dict)
    proved: dict[int, Proved] = field(default_factory=dict)
    is_finished: bool = False
    garbage: bytes | None = None

    def take(self, line: bytes) -> None:
        answer: Answer | None = read_answer(line)
        match answer:
            case Found(task, timeline) if 0 <= task < self.num_tasks:
                self.timelines[task] = timeline
                self.on_found(task, timeline)
            case Proved(task, _, _) if 0 <= task < self.num_tasks:
                self.proved[task] = answer
            case Finished():
                self.is_finished = True
            case _:
                self.garbage = self.garbage or line

    def report(self, end: ChildEnd, detail: str) -> Report:
        return Report(end, detail, self.timelines, self.proved)


def _converse(
    child: subprocess.Popen[bytes], request: bytes, deadline: float, inbox: _Inbox
) -> Report:
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
            return inbox.report(ChildEnd.GARBLED, "the solver process printed without end")
    if rest:
        inbox.take(rest)
    try:
        status = child.wait(timeout=max(deadline - time.monotonic(), 0.0))
    except subprocess.TimeoutExpired:
        return inbox.report(ChildEnd.KILLED, "the solver process was killed at its deadline")
    return _judge(inbox, status, bytes(errors))


def _judge(inbox: _Inbox, status: int, errors: bytes) -> Report:
    if status != 0:
        said = errors.decode(errors="replace").strip().splitlines()
        last = f": {said[-1]}" if said else ""
        return inbox.report(
            ChildEnd.CRASHED, f"the solver process ended with status {status}{last}"
        )
    if inbox.garbage is not None or not inbox.is_finished:
        found = repr(inbox.garbage[:80]) if inbox.garbage is not None else "no last word"
        return inbox.report(ChildEnd.GARBLED, f"the solver process answered {found}")
    return inbox.report(ChildEnd.FINISHED, "the solver process finished")


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
