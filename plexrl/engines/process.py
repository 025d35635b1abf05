"""Body of an engine process: one engine, driven by its parent over a socket.

Started as ``python -m plexrl.engines.process FD`` by `plexrl.engines.remote.EngineProcess`.
"""

from __future__ import annotations

import gc
import logging
import mmap
import os
import select
import shutil
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import NoReturn, cast

from dataflow.sample_batch import SampleBatch, as_batch
from dataflow.samples import Sample
from plexrl.engines.forward import Forward
from plexrl.engines.frames import (
    ArenaName,
    Begin,
    BreakName,
    Cancel,
    Drawing,
    Generation,
    Reply,
    Request,
    Stop,
    dumps,
    receive,
    receive_fd,
    send,
    send_beat,
)
from plexrl.engines.inbox import Inbox
from plexrl.engines.lookahead import LookAhead, taking
from plexrl.engines.peers import Peers, guarded, meeting_folder
from plexrl.engines.pinning import pinning_of_process
from plexrl.engines.protocol import (
    Break,
    DrawnAhead,
    Engine,
    EngineKind,
    Interrupted,
    RolloutEngine,
    StoredTraining,
    Unfinished,
)
from plexrl.engines.ranks import ALONE, EngineStart, Ranks, device_of, join
from plexrl.engines.torch_engine import TorchEngine
from plexrl.engines.vllm_engine import VLLMEngine
from plexrl.errors import EngineDiedError, PlexRLError

logger = logging.getLogger("plexrl.engines")

BEAT_S = 1.0
"""Seconds between signs of life: far below any patience, and 8 bytes each."""

_DRAWING = frozenset({"generate", "generate_until"})

_GIVING_UP = threading.Lock()
"""One reply to the parent: the others of a start that failed come too late."""


class Heart:
    """Tells the parent that this process lives while it computes.

    It beats in a thread of its own: a process that was stopped, or whose interpreter lock is
    never given back, falls silent.

    Parameters
    ----------
    sock
        To the parent.
    look
        Says what is being drawn; called in that thread.
    """

    def __init__(
        self, sock: socket.socket, look: Callable[[], tuple[Unfinished, ...]] = lambda: ()
    ) -> None:
        self._sock = sock
        self._look = look
        self._lock = threading.Lock()
        self._is_computing = threading.Event()
        threading.Thread(target=self._beat, daemon=True).start()

    def begin(self) -> None:
        """A request came."""
        self._is_computing.set()

    def reply(self, data: bytes) -> None:
        """Send the reply; the parent expects nothing after it."""
        with self._lock:
            self._is_computing.clear()
            send(self._sock, data)

    def _beat(self) -> None:
        while True:
            self._is_computing.wait()
            time.sleep(BEAT_S)
            drawn = self._look()
            with self._lock:
                if not self._is_computing.is_set():
                    continue
                if drawn:
                    send(self._sock, dumps(Drawing(drawn)))
                else:
                    send_beat(self._sock)


class Host:
    """Runs requests on the engine, with the arenas the parent attached."""

    def __init__(
        self,
        sock: socket.socket,
        engine: Engine | RolloutEngine,
        ranks: Ranks = ALONE,
        peers: Peers | None = None,
    ) -> None:
        self.sock = sock
        self.engine = engine
        self._ranks = ranks
        self._peers = peers
        self.arenas: dict[str, memoryview] = {}
        self._pinning = pinning_of_process()
        self.inbox = Inbox(sock, self._pass_on)
        self._ahead: LookAhead | None = None
        if isinstance(engine, TorchEngine) and peers is None:
            self._ahead = LookAhead(engine, self.inbox)

    def run(self, request: Request) -> object:
        """Run one request and return its result."""
        if request.method == "attach":
            self._attach(request)
            return None
        if self._peers is None:
            return guarded(request, self._ranks, self._run_here)
        names = [a.name for a in request.args if isinstance(a, BreakName)]

        def look() -> None:
            for name in names:
                self.inbox.is_stopped(name)

        def run_here(part: Request) -> object:
            return guarded(part, self._ranks, self._run_here)

        return self._peers.run(request, run_here, look)

    def unfinished(self) -> tuple[Unfinished, ...]:
        """What is being drawn right now, by other ranks too."""
        others = () if self._peers is None else self._peers.unfinished()
        return self.engine.unfinished() + others

    def _run_here(self, request: Request) -> object:
        if request.method == "detach":
            self._detach(*request.args)
            return None
        result: object = None if self._ahead is None else self._ahead.take(request)
        if result is None:
            args = [self._argument(argument) for argument in request.args]
            result = getattr(self.engine, request.method)(*args)
        if self._ahead is not None:
            is_drawn = request.method in _DRAWING and isinstance(result, tuple)
            found = result if is_drawn else request.args[0] if request.method == "logprobs" else ()
            self._ahead.samples = cast("Sequence[Sample]", found)
        return result

    def _pass_on(self, frame: Stop | Cancel) -> None:
        if self._peers is not None:
            self._peers.tell(frame)

    def receive(self) -> Request:
        """The next request; until it comes, what is likely to be asked for may be computed."""
        while not isinstance(frame := self.inbox.receive(), Request):
            if isinstance(frame, Begin):
                self.compute_ahead(frame.forward)
            elif self._ahead is not None:
                self._ahead.give_up()
        return frame

    def compute_ahead(self, work: Forward | Generation) -> None:
        """Begin with what is likely to be asked for."""
        if self._ahead is not None:
            self._ahead.compute(work)

    @property
    def is_first(self) -> bool:
        """Whether it is the only rank, or the one that puts the answers of all together."""
        return self._ranks.is_first

    @property
    def trained_ahead_s(self) -> float:
        """Seconds of the last training that were computed before it was asked for."""
        return 0.0 if self._ahead is None else self._ahead.trained_s

    @property
    def drawn_ahead_s(self) -> float:
        """Seconds of the last generation that were computed before it was asked for."""
        return 0.0 if self._ahead is None else self._ahead.drawn_s

    def _argument(self, argument: object) -> object:
        if isinstance(argument, ArenaName):
            return self.arenas[argument.id]
        if isinstance(argument, BreakName):
            return Break(
                argument.name,
                lambda: self.inbox.is_stopped(argument.name),
                cancelled=lambda: self.inbox.cancelled_of(argument.name),
            )
        return argument

    def _attach(self, request: Request) -> None:
        name, nbytes = request.args
        fd = receive_fd(self.sock)
        try:
            if self._peers is not None:
                self._peers.attach(request, fd)
            assert isinstance(name, str)
            assert isinstance(nbytes, int)
            self.arenas[name] = memoryview(mmap.mmap(fd, nbytes))
            self._pinning.pin(name, self.arenas[name])
        finally:
            os.close(fd)

    def _detach(self, *args: object) -> None:
        (name,) = args
        assert isinstance(name, str)
        self._pinning.unpin(name)
        view = self.arenas.pop(name)
        mapping = view.obj
        view.release()
        assert isinstance(mapping, mmap.mmap)
        mapping.close()


def build_host(sock: socket.socket, start: EngineStart) -> Host:
    """The engine of the kind the source asks for, with its other ranks if it has any."""
    source, ranks = start.source, start.ranks
    if source.kind is EngineKind.VLLM:
        return Host(sock, VLLMEngine(source))
    if ranks.count == 1:
        return Host(sock, TorchEngine(source))
    if not ranks.is_first:
        join(start)
        return Host(sock, TorchEngine(source, device_of(ranks), ranks), ranks)
    with meeting_folder() as folder:
        start = replace(start, meeting=folder)

        def fail(error: BaseException) -> None:
            shutil.rmtree(folder, ignore_errors=True)
            _give_up(sock, error)

        peers = Peers(start, fail)
        join(start)
        engine = TorchEngine(source, device_of(ranks), ranks)
        peers.wait_started()
    return Host(sock, engine, ranks, peers)


def serve(sock: socket.socket) -> None:
    """Build the engine that the first frame names, then run requests until the parent is gone."""
    start = receive(sock)
    assert isinstance(start, EngineStart)
    try:
        host = build_host(sock, start)
    except Exception as error:  # noqa: BLE001 (the parent raises it)
        if start.ranks.count > 1:
            _give_up(sock, error)
        send(sock, dumps(_failure(error)))
        return
    # Collections would walk through all that was imported, a tenth of a second each.
    gc.freeze()
    send(sock, dumps(Reply()))
    heart = Heart(sock, host.unfinished)
    host.inbox.on_request = heart.begin
    while True:
        try:
            request = host.receive()
            heart.begin()
            reply = Reply(as_batch(_run(host, request)))
        except (EOFError, ConnectionError):
            return
        except Exception as error:  # noqa: BLE001 (the parent raises it)
            reply = _failure(error)
        heart.reply(dumps(reply))
        if isinstance(reply.error, EngineDiedError):
            # At once: whoever waits for this rank must learn it.
            os._exit(1)
        if reply.is_success and request.ahead is not None:
            host.compute_ahead(request.ahead)


def _run(host: Host, request: Request) -> object:
    """Run a request, and what shall be run then."""
    result = host.run(replace(request, then=None, ahead=None))
    if taking(request) is not None and host.is_first:
        found = cast("SampleBatch | Interrupted", as_batch(result))
        return DrawnAhead(found, host.drawn_ahead_s)
    if request.then is None:
        return result
    began_s = time.monotonic()
    host.run(request.then)
    store_s = time.monotonic() - began_s
    return StoredTraining(cast("Mapping[str, float]", result), store_s, host.trained_ahead_s)


def _give_up(sock: socket.socket, error: BaseException) -> NoReturn:
    """Tell the parent why there is no engine, and end, whatever another thread waits for."""
    with _GIVING_UP:
        send(sock, dumps(_failure(error)))
        os._exit(1)


def exit_with_parent(sock: socket.socket) -> None:
    """End this process at once when the parent closes its end, even in mid-computation.

    A parent-death signal would not do: it fires when the *thread* that started this process
    ends, and workers start engines from pool threads.
    """
    poll = select.poll()
    poll.register(sock.fileno(), 0)
    poll.poll()
    os._exit(0)


def main() -> None:
    """Serve on the socket whose file descriptor is the only argument."""
    # Ctrl-C reaches every process of the terminal; the parent decides what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sock = socket.socket(fileno=int(sys.argv[1]))
    threading.Thread(target=exit_with_parent, args=(sock,), daemon=True).start()
    serve(sock)


def _failure(error: BaseException) -> Reply:
    if isinstance(error, PlexRLError):
        return Reply(error=error)
    return Reply(traceback="".join(traceback.format_exception(error)))


if __name__ == "__main__":
    main()
