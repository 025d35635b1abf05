"""What an engine process is sent: requests, one at a time, and news that come between them."""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Callable

from dataflow.samples import SampleId
from plexrl.engines.frames import Begin, Cancel, GiveUp, Request, Stop, receive

News = Request | Begin | GiveUp
"""What the engine does something about; anything else is for what it is doing."""


class Inbox:
    """Reads the socket to the parent.

    Parameters
    ----------
    sock
        To the parent.
    pass_on
        Told of every stop and cancellation: other ranks want to hear it.

    Attributes
    ----------
    on_request : Callable
        Called when a request comes before it is received.
    asked_s : float or None
        When that was (monotonic seconds); None since the last `receive`.
    """

    def __init__(self, sock: socket.socket, pass_on: Callable[[Stop | Cancel], None]) -> None:
        self._sock = sock
        self._pass_on = pass_on
        self._stopped = ""
        self._cancelled = Cancel("", frozenset())
        self._waiting: News | None = None
        self.on_request: Callable[[], None] = lambda: None
        self.asked_s: float | None = None

    def receive(self) -> News:
        """The next request, or what to do until it comes."""
        while self._waiting is None:
            frame = receive(self._sock)
            if isinstance(frame, News):
                return frame
            self._note(frame)
        found, self._waiting, self.asked_s = self._waiting, None, None
        return found

    def look(self) -> News | None:
        """What has come meanwhile, and what `receive` will give."""
        if self._waiting is None and self._has_news():
            frame = receive(self._sock)
            if isinstance(frame, News):
                self._waiting = frame
            else:
                self._note(frame)
            if isinstance(frame, Request):
                self.asked_s = time.monotonic()
                self.on_request()
        return self._waiting

    def is_stopped(self, name: str) -> bool:
        """Whether what runs by this name shall stop; while it does, nothing else is sent."""
        if self._stopped != name and self._has_news():
            self._note(receive(self._sock))
        return self._stopped == name

    def cancelled_of(self, name: str) -> frozenset[SampleId]:
        """Samples of this generation that shall end, as far as that has been heard."""
        return self._cancelled.samples if self._cancelled.name == name else frozenset()

    def _has_news(self) -> bool:
        return bool(select.select([self._sock], [], [], 0)[0])

    def _note(self, frame: object) -> None:
        assert isinstance(frame, Stop | Cancel)
        if isinstance(frame, Stop):
            self._stopped = frame.name
        else:
            self._cancelled = frame
        self._pass_on(frame)
