"""Messages between an engine process and its parent: length-prefixed pickles on a socket."""

from __future__ import annotations

import pickle
import socket
import struct
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import cloudpickle

from dataflow.calls import GenerateOptions
from dataflow.samples import Prompt, Sample, SampleId
from plexrl.engines.forward import Forward
from plexrl.engines.protocol import DrawKey, Unfinished

_LENGTH = struct.Struct("<Q")
_MARKER = b"\0"
"""Payload that a file descriptor rides on."""


@dataclass(frozen=True, slots=True)
class Request:
    """Parent → child: run a method of the engine."""

    method: str
    args: tuple[object, ...]
    then: Request | None = None
    """For training: storing, to be run when it has succeeded; the result is a `StoredTraining`."""
    ahead: Forward | Generation | None = None
    """What is likely to be asked for next: begun with after the reply, until anything else is."""


@dataclass(frozen=True, slots=True)
class Stop:
    """Parent → child: end what has this name after the token or micro-batch it is at; no reply.

    It may come before the request, while it runs, or too late, and then means nothing.
    """

    name: str


@dataclass(frozen=True, slots=True)
class Cancel:
    """Parent → child: end these samples of a generation with the token they are at; no reply.

    It may come when `Stop` may; a later one of the same name takes its place.
    """

    name: str
    samples: frozenset[SampleId]


@dataclass(frozen=True, slots=True)
class Generation:
    """A generation with the weights as they are."""

    name: str
    """By which a request takes it over (`BreakName`)."""
    inputs: Sequence[Prompt] | Sequence[Sample]
    options: GenerateOptions
    key: DrawKey


@dataclass(frozen=True, slots=True)
class Begin:
    """Parent → child: begin with training on the samples last drawn or scored; no reply.

    As with `Request.ahead`, anything else that is asked for ends it.
    """

    forward: Forward


@dataclass(frozen=True, slots=True)
class GiveUp:
    """Parent → child: give up what was begun ahead, since others want the group; no reply."""


@dataclass(frozen=True, slots=True)
class ArenaName:
    """Stands for an arena in the arguments of a request; the child has it mapped."""

    id: str


@dataclass(frozen=True, slots=True)
class BreakName:
    """Stands for a break in the arguments of a request; the child asks its socket."""

    name: str
    foreseen: str = ""
    """Name of the `Generation` drawn ahead that the request takes over, as far as it came; the
    result is a `plexrl.engines.protocol.DrawnAhead` then. Empty: none."""


@dataclass(frozen=True, slots=True)
class Drawing:
    """Child → parent: a sign of life, and what it is drawing."""

    samples: tuple[Unfinished, ...]


@dataclass(frozen=True, slots=True)
class Reply:
    """Child → parent: the result, or what went wrong."""

    value: object = None
    error: Exception | None = None
    """An error of `plexrl.errors`, to be raised as it is."""
    traceback: str = ""
    """Set for any other exception."""

    @property
    def is_success(self) -> bool:
        """Whether there is a result."""
        return self.error is None and not self.traceback


def dumps(message: object) -> bytes:
    """Pickle a message; functions a user defined in a script travel by value."""
    data: bytes = cloudpickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)
    return data


def send(sock: socket.socket, data: bytes, deadline_s: float | None = None) -> None:
    """Send one frame.

    Parameters
    ----------
    sock
        A connected stream socket.
    data
        Body of the frame.
    deadline_s
        On the clock of `time.monotonic`; None waits without limit.

    Raises
    ------
    TimeoutError
        The deadline passed.
    OSError
        The other side is gone.
    """
    _set_timeout(sock, deadline_s)
    sock.sendall(framed(data))


def framed(data: bytes) -> bytes:
    """One frame: the length of the body, then the body."""
    return _LENGTH.pack(len(data)) + data


def send_beat(sock: socket.socket) -> None:
    """Send a sign of life: an empty frame, which `receive` passes over."""
    sock.sendall(_LENGTH.pack(0))


def receive(
    sock: socket.socket,
    deadline_s: float | None = None,
    silence_s: float | None = None,
    on_drawing: Callable[[Drawing], None] | None = None,
) -> object:
    """Receive one frame and unpickle it.

    Parameters
    ----------
    sock
        A connected stream socket.
    deadline_s
        On the clock of `time.monotonic`; None waits without limit.
    silence_s
        Longest time without a byte, signs of life included; None: any.
    on_drawing
        Told what comes with signs of life, which are no frames to return.

    Raises
    ------
    TimeoutError
        The deadline passed, or the other side was silent for too long.
    EOFError
        The other side is gone.
    """
    while True:
        (length,) = _LENGTH.unpack(_receive_exactly(sock, _LENGTH.size, deadline_s, silence_s))
        if not length:
            continue
        data = _receive_exactly(sock, length, deadline_s, silence_s)
        frame = pickle.loads(data)  # noqa: S301 (own child)
        if not isinstance(frame, Drawing):
            return frame
        if on_drawing is not None:
            on_drawing(frame)


def send_fd(sock: socket.socket, fd: int) -> None:
    """Pass a file descriptor to the other side."""
    socket.send_fds(sock, [_MARKER], [fd])


def receive_fd(sock: socket.socket) -> int:
    """The file descriptor passed by `send_fd`; the caller closes it."""
    _, fds, _, _ = socket.recv_fds(sock, len(_MARKER), 1)
    if not fds:
        raise EOFError("the parent is gone")
    return fds[0]


def _receive_exactly(
    sock: socket.socket, length: int, deadline_s: float | None, silence_s: float | None
) -> bytearray:
    data = bytearray(length)
    view = memoryview(data)
    done = 0
    while done < length:
        _set_timeout(sock, deadline_s, silence_s)
        received = sock.recv_into(view[done:])
        if received == 0:
            raise EOFError("the other side closed the socket")
        done += received
    return data


def _set_timeout(
    sock: socket.socket, deadline_s: float | None, silence_s: float | None = None
) -> None:
    if deadline_s is None:
        sock.settimeout(silence_s)
        return
    left_s = deadline_s - time.monotonic()
    if left_s <= 0:
        raise TimeoutError
    sock.settimeout(left_s if silence_s is None else min(left_s, silence_s))
