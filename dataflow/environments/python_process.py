"""A Python process that evaluates arithmetic line by line, and that can be killed.

Requests and answers alternate, so that it is always known which call hangs, and no pipe can
fill up. The parent waits with a selector rather than a signal, so that it works in any thread.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from enum import StrEnum
from typing import Self

from dataflow.errors import ToolError

_SERVER = r"""
import ast, json, resource, sys, time
memory, cpu = int(sys.argv[1]), int(sys.argv[2])
resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
LEGAL = (ast.Expression, ast.BinOp, ast.UnaryOp, ast.Constant, ast.operator, ast.unaryop)
print("ready", flush=True)
for line in sys.stdin:
    resource.setrlimit(resource.RLIMIT_CPU, (int(time.process_time()) + 1 + cpu, hard))
    try:
        tree = ast.parse(json.loads(line), mode="eval")
        for part in ast.walk(tree):
            number = not isinstance(part, ast.Constant) or type(part.value) in (int, float)
            if not isinstance(part, LEGAL) or not number:
                raise ValueError(type(part).__name__ + " is not arithmetic")
        answer = {"value": str(eval(compile(tree, "<call>", "eval"), {"__builtins__": {}}))}
    except BaseException as error:
        answer = {"error": type(error).__name__ + ": " + str(error)}
    print(json.dumps(answer), flush=True)
"""

_START_TIMEOUT_S = 60.0
_READ_BYTES = 65536


class CallEnd(StrEnum):
    """How one call ended."""

    ANSWERED = "answered"
    FAILED = "failed"
    """The expression has no value, or the process died of it."""
    TIMED_OUT = "timed_out"
    """The process was killed at a time limit."""


@dataclass(frozen=True, slots=True)
class Answer:
    """Outcome of one call."""

    end: CallEnd
    text: str
    """Value as text, or why there is none."""


@dataclass(frozen=True, slots=True)
class ProcessLimits:
    """What one call may use."""

    wall_s: float = 2.0
    """Seconds after which the process is killed: far above any honest product."""
    cpu_s: int = 2
    """Seconds of CPU after which the kernel kills it, should the parent be gone."""
    memory_bytes: int = 256 << 20
    """Address space of the process; an idle interpreter takes about 30 MB of it."""


class PythonProcess:
    """One child process; a context manager that leaves nothing running.

    Raises
    ------
    ToolError
        The interpreter cannot be started.
    """

    def __init__(self, limits: ProcessLimits) -> None:
        self._limits = limits
        self._buffer = b""
        command = [sys.executable, "-S", "-I", "-c", _SERVER]
        try:
            self._process = subprocess.Popen(
                [*command, str(limits.memory_bytes), str(limits.cpu_s)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env={},
                bufsize=0,
                start_new_session=True,
            )
        except OSError as error:
            raise ToolError(
                f"the tool process {sys.executable} cannot be started: {error}"
            ) from error
        if self._read_line(_START_TIMEOUT_S) != b"ready":
            self.close()
            raise ToolError(
                f"the tool process {sys.executable} did not get ready (exit status "
                f"{self._process.returncode}, memory limit {limits.memory_bytes} bytes); raise the "
                "memory limit or repair the interpreter"
            )

    @property
    def is_alive(self) -> bool:
        """Whether it can take another call."""
        return self._process.poll() is None

    @property
    def pid(self) -> int:
        """Process id."""
        return self._process.pid

    def evaluate(self, expression: str) -> Answer:
        """Value of an arithmetic expression; afterwards the process may be dead."""
        pipe = self._process.stdin
        assert pipe is not None
        try:
            pipe.write(json.dumps(expression).encode() + b"\n")
        except BrokenPipeError:
            self.close()
            return Answer(CallEnd.FAILED, "the tool process was gone")
        line = self._read_line(self._limits.wall_s)
        if line is None:
            return self._post_mortem()
        answer: dict[str, str] = json.loads(line)
        if "error" in answer:
            return Answer(CallEnd.FAILED, answer["error"])
        return Answer(CallEnd.ANSWERED, answer["value"])

    def close(self) -> None:
        """Kill the process and wait for it."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _post_mortem(self) -> Answer:
        """Why no answer came."""
        try:
            status = self._process.wait(timeout=0)
        except subprocess.TimeoutExpired:
            self.close()
            return Answer(CallEnd.TIMED_OUT, f"killed after {self._limits.wall_s:g} s")
        self.close()
        if status == -signal.SIGXCPU:
            return Answer(CallEnd.TIMED_OUT, f"killed after {self._limits.cpu_s} s of CPU")
        return Answer(CallEnd.FAILED, f"the tool process died with exit status {status}")

    def _read_line(self, timeout_s: float) -> bytes | None:
        """Next line, or None at the time limit or the end of the stream."""
        pipe = self._process.stdout
        assert pipe is not None
        deadline_s = time.monotonic() + timeout_s
        with selectors.DefaultSelector() as selector:
            selector.register(pipe, selectors.EVENT_READ)
            while b"\n" not in self._buffer:
                left_s = deadline_s - time.monotonic()
                if left_s <= 0 or not selector.select(left_s):
                    return None
                read = os.read(pipe.fileno(), _READ_BYTES)
                if not read:
                    # The stream ends when the process dies; its status follows at once.
                    self._process.wait()
                    return None
                self._buffer += read
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line
