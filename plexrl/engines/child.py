"""The child process of an engine: how it is started, spoken to and ended."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping
from contextlib import suppress

from plexrl.engines.child_environment import child_command, child_environment
from plexrl.engines.frames import Drawing, Reply, framed, receive, send, send_fd
from plexrl.engines.protocol import EngineKind, ModelSource, Unfinished
from plexrl.engines.vllm_settings import ENVIRONMENT as VLLM_ENVIRONMENT
from plexrl.errors import EngineDiedError, EngineError

_LOG_TAIL_BYTES = 4000
"""How much of the child's last output an error quotes."""

_EXIT_WAIT_S = 5.0
"""How long a child that closed its socket may take to end before it is killed."""

_ENVIRONMENT: Mapping[EngineKind, Mapping[str, str]] = {
    EngineKind.TORCH: {},
    EngineKind.VLLM: VLLM_ENVIRONMENT,
}
"""What each kind of engine needs in its environment."""


class EngineChild:
    """A process that runs `plexrl.engines.process`, and the socket to it.

    Parameters
    ----------
    source
        Names the process in errors, and says what its kind of engine needs.
    env
        Environment variables on top of this process's own.

    Attributes
    ----------
    unfinished : tuple of Unfinished
        What it was drawing when it last gave a sign of life; empty while nothing runs.
    """

    def __init__(self, source: ModelSource, env: Mapping[str, str]) -> None:
        self.source = source
        self.unfinished: tuple[Unfinished, ...] = ()
        self._is_closed = False
        self._send_lock = threading.Lock()
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 (closed by `forget`)
        self._sock, child_end = socket.socketpair()
        try:
            self._process = _start(
                child_end, self._log.fileno(), {**_ENVIRONMENT[source.kind], **env}
            )
        finally:
            child_end.close()

    @property
    def pid(self) -> int:
        """Process id."""
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        """Whether it runs and nobody ended it."""
        return not self._is_closed and self._process.poll() is None

    def exchange(
        self,
        data: bytes,
        timeout_s: float,
        what: str,
        fd: int | None = None,
        silence_s: float | None = None,
    ) -> object:
        """Send one frame, and a file descriptor if given, and wait for the reply.

        A child that gives no sign of life for `silence_s` seconds counts as stuck; None: it may.

        Raises
        ------
        EngineDiedError
            The child is gone, or was stuck or too slow and was killed.
        PlexRLError
            What the child replied.
        """
        if self._is_closed:
            raise EngineDiedError(
                f"engine of {self.source.folder!r} is closed; {what} came too late"
            )
        deadline_s = time.monotonic() + timeout_s
        try:
            reply = self._round_trip(data, deadline_s, silence_s, fd)
        except TimeoutError:
            self._process.kill()
            self._process.wait()
            why = f"did not answer {what} within {timeout_s:g} s"
            if silence_s is not None and time.monotonic() < deadline_s:
                why = f"gave no sign of life for {silence_s:g} s during {what}"
            raise self._death(f"{why} and was killed") from None
        except (EOFError, OSError) as error:
            raise self._death(f"died during {what} ({self._exit_text()})") from error
        except BaseException:
            # The reply to an interrupted call would be taken for that of the next one.
            self._process.kill()
            raise
        return self._result(reply, what)

    def tell(self, data: bytes) -> None:
        """Send one frame that has no reply, whatever runs; to a child that is gone, nothing."""
        with self._send_lock, suppress(OSError):
            # Its timeout stays that of the exchange that waits in another thread.
            self._sock.sendall(framed(data))

    def _round_trip(
        self, data: bytes, deadline_s: float, silence_s: float | None, fd: int | None
    ) -> object:
        with self._send_lock:
            send(self._sock, data, _earliest(deadline_s, silence_s))
            if fd is not None:
                send_fd(self._sock, fd)
        try:
            return receive(self._sock, deadline_s, silence_s, self._note)
        finally:
            self.unfinished = ()

    def _note(self, drawing: Drawing) -> None:
        self.unfinished = drawing.samples

    def _result(self, reply: object, what: str) -> object:
        assert isinstance(reply, Reply)
        if isinstance(reply.error, EngineDiedError):
            # It lost one of its ranks and ends by itself; until then it is as good as dead.
            self.end()
        if reply.error is not None:
            raise reply.error
        if reply.traceback:
            raise EngineError(
                f"{what} failed in engine process {self.pid} of {self.source.folder!r}:\n"
                f"{reply.traceback}"
            )
        return reply.value

    def end(self) -> None:
        """End the process; any number of times, from any thread."""
        self._is_closed = True
        with suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)
        try:
            self._process.wait(_EXIT_WAIT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def forget(self) -> None:
        """Close socket and log; no exchange may run."""
        self._sock.close()
        self._log.close()

    def _death(self, how: str) -> EngineDiedError:
        return EngineDiedError(
            f"engine process {self.pid} of {self.source.folder!r} {how}{self._log_tail()}"
        )

    def _exit_text(self) -> str:
        try:
            status = self._process.wait(_EXIT_WAIT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            status = self._process.wait()
        if status < 0:
            return f"signal {signal.Signals(-status).name}"
        return f"exit status {status}"

    def _log_tail(self) -> str:
        size = os.fstat(self._log.fileno()).st_size
        start = max(0, size - _LOG_TAIL_BYTES)
        tail = os.pread(self._log.fileno(), _LOG_TAIL_BYTES, start).decode(errors="replace")
        return f"; its last output:\n{tail.strip()}" if tail.strip() else ""


def _earliest(deadline_s: float, silence_s: float | None) -> float:
    """When a child that reads nothing is given up."""
    return deadline_s if silence_s is None else min(deadline_s, time.monotonic() + silence_s)


def _start(
    child_end: socket.socket, log_fd: int, env: Mapping[str, str]
) -> subprocess.Popen[bytes]:
    fd = child_end.fileno()
    return subprocess.Popen(
        child_command("plexrl.engines.process", str(fd)),
        pass_fds=(fd,),
        stdin=subprocess.DEVNULL,
        stdout=log_fd,
        stderr=log_fd,
        env=child_environment(env),
    )
