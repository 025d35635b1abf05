"""A child process that answers one request at a time, and that can be killed.

Requests and answers alternate, so that it is always known which request hangs, and no pipe can
fill up. The parent waits with a selector rather than a signal, so that it works in any thread.

The child leads a process group, so that all it starts ends with it, but no session: Linux shares
the processors out by session first (sched_autogroup, sched(7)), and the niceness that makes tools
yield to engines would mean nothing.
"""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import Self

from dataflow.errors import DataError, NotReadyError
from dataflow.ranges import Range

_START_TIMEOUT_S = 120.0
"""Seconds until a new process must greet: it may import large libraries on a busy machine."""
_END_TIMEOUT_S = 5.0
"""Seconds a process that closed its output may take to end."""
_READ_BYTES = 65536
_LIMITS = {
    "wall_s": Range(0, is_above=True),
    "cpu_s": Range(0, is_whole=True),
    "memory_bytes": Range(1 << 20, is_whole=True),
}


@dataclass(frozen=True, slots=True)
class ProcessLimits:
    """What one request may use.

    Raises
    ------
    DataError
        A limit leaves nothing to work with.
    """

    wall_s: float = 2.0
    """Seconds after which the process is killed: far above any honest product."""
    cpu_s: int = 2
    """Seconds of CPU after which the kernel kills it, should the parent be gone."""
    memory_bytes: int = 256 << 20
    """Address space of the process; an idle interpreter takes about 30 MB of it."""

    def __post_init__(self) -> None:
        for name, legal in _LIMITS.items():
            if getattr(self, name) not in legal:
                raise DataError(
                    f"a process with {name}={getattr(self, name)!r} could never answer; give "
                    f"{legal}"
                )


@dataclass(frozen=True, slots=True)
class Silence:
    """Why no answer came; the process is dead."""

    reason: str
    is_at_limit: bool
    """Whether it was killed at a time limit; otherwise it died, or somebody killed it."""


class AnsweringProcess:
    """One child process; a context manager that leaves nothing running.

    Parameters
    ----------
    command
        Program that prints a line when it is ready, then a line for each request.
    limits
        What one request may use; the program sets its own limits of CPU and memory.
    greeting
        First bytes it is sent, before it says that it is ready.
    env
        Its environment variables; None: this process's own.

    Raises
    ------
    NotReadyError
        It cannot be started, or did not get ready.
    """

    def __init__(
        self,
        command: Sequence[str],
        limits: ProcessLimits,
        *,
        greeting: bytes = b"",
        env: Mapping[str, str] | None = None,
    ) -> None:
        self._limits = limits
        self._buffer = b""
        self._is_closed = False
        try:
            self._child = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=env,
                bufsize=0,
                process_group=0,
            )
        except OSError as error:
            raise NotReadyError(f"{command[0]} cannot be started: {error}") from error
        assert self._child.stdin is not None
        # One that does not read must not hold up its parent.
        os.set_blocking(self._child.stdin.fileno(), False)
        try:
            greeted = self._exchange(greeting, _START_TIMEOUT_S)
        except BaseException:
            self.close()
            raise
        if isinstance(greeted, Silence):
            raise NotReadyError(f"it did not get ready: {greeted.reason}")

    @property
    def is_alive(self) -> bool:
        """Whether it can take another request."""
        return self._child.poll() is None

    @property
    def pid(self) -> int:
        """Process id."""
        return self._child.pid

    def ask(self, request: bytes) -> bytes | Silence:
        """The line it answers with; after a `Silence` the process is dead."""
        return self._exchange(request, self._limits.wall_s)

    def tell(self, request: bytes) -> bool:
        """Send what is not answered; whether it was taken in time."""
        with suppress(BrokenPipeError):
            return self._write(request, time.monotonic() + self._limits.wall_s)
        return False

    def close(self) -> None:
        """Kill the process, and what it started in its group, and wait for it."""
        if self._is_closed:
            # Its number may be another process's by now.
            return
        self._is_closed = True
        kill_group(self._child)
        for pipe in (self._child.stdin, self._child.stdout):
            if pipe is not None:
                pipe.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _exchange(self, request: bytes, timeout_s: float) -> bytes | Silence:
        deadline_s = time.monotonic() + timeout_s
        try:
            is_over = self._write(request, deadline_s) and self._read_line(deadline_s)
        except BrokenPipeError:
            return self._died()
        if is_over is None:
            return self._died()
        if not is_over:
            self.close()
            return Silence(f"killed after {timeout_s:g} s", is_at_limit=True)
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line

    def _write(self, request: bytes, deadline_s: float) -> bool:
        """Whether it has taken a request in time."""
        pipe = self._child.stdin
        assert pipe is not None
        left = memoryview(request)
        with selectors.DefaultSelector() as selector:
            selector.register(pipe, selectors.EVENT_WRITE)
            while left:
                if not selector.select(max(0.0, deadline_s - time.monotonic())):
                    return False
                left = left[pipe.write(left) or 0 :]
        return True

    def _read_line(self, deadline_s: float) -> bool | None:
        """Whether a whole line came in time; None at the end of the stream."""
        pipe = self._child.stdout
        assert pipe is not None
        with selectors.DefaultSelector() as selector:
            selector.register(pipe, selectors.EVENT_READ)
            while b"\n" not in self._buffer:
                if not selector.select(max(0.0, deadline_s - time.monotonic())):
                    return False
                read = os.read(pipe.fileno(), _READ_BYTES)
                if not read:
                    return None
                self._buffer += read
        return True

    def _died(self) -> Silence:
        """The stream has ended, so the process has, or is about to."""
        with suppress(subprocess.TimeoutExpired):
            self._child.wait(_END_TIMEOUT_S)
        self.close()
        status = self._child.returncode
        if status == -signal.SIGXCPU:
            return Silence(f"killed after {self._limits.cpu_s} s of CPU", is_at_limit=True)
        return Silence(f"the process died with exit status {status}", is_at_limit=False)


def kill_group(child: subprocess.Popen[bytes]) -> None:
    """Kill a process that leads a group of its own, with all that it started there."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()


def ask_all(
    start: Callable[[], AnsweringProcess],
    requests: Sequence[bytes],
    *,
    keep: Callable[[AnsweringProcess], None] | None = None,
) -> Generator[bytes | Silence]:
    """Answers in the order of the requests; as many processes as requests kill, plus one.

    A process that dies is replaced once, and its request repeated: somebody else may have killed
    it, and what a job learns must not depend on that. A second death is the request's own.

    Parameters
    ----------
    start
        Gives a process, a new one or one that served others before.
    requests
        Bytes that the process is sent.
    keep
        Is handed the process that answered the last request, to serve others; None: it is ended.

    Raises
    ------
    NotReadyError
        Two processes in a row did not get ready.
    """
    position, num_deaths, num_false_starts = 0, 0, 0
    while position < len(requests):
        try:
            process = start()
        except NotReadyError:
            num_false_starts += 1
            if num_false_starts > 1:
                raise
            continue
        num_false_starts = 0
        with ExitStack() as ending:
            ending.callback(process.close)
            while process.is_alive and position < len(requests):
                answer = process.ask(requests[position])
                is_death = isinstance(answer, Silence) and not answer.is_at_limit
                num_deaths = num_deaths + 1 if is_death else 0
                if num_deaths == 1:
                    break
                num_deaths = 0
                position += 1
                yield answer
            if keep is not None and position == len(requests) and process.is_alive:
                ending.pop_all()
                keep(process)
