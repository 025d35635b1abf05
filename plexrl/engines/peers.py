"""The other ranks of an engine, as the first one sees them: child processes that do the same."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import replace

from plexrl.engines.child import EngineChild
from plexrl.engines.frames import Cancel, Request, Stop, dumps
from plexrl.engines.protocol import Unfinished
from plexrl.engines.ranks import EngineStart, Ranks
from plexrl.engines.sharing import FIRST_ONLY, deal, is_shared, put_together
from plexrl.errors import EngineDiedError, PlexRLError

_POLL_S = 0.02
"""Seconds between looks for news from the parent while other ranks still compute."""


class Peers:
    """Starts the other ranks and relays requests to them.

    They end with this process: each ends when its socket closes.

    Parameters
    ----------
    start
        What the parent asked for; `start.meeting` is a folder that exists.
    on_failure
        Told, in another thread, that a rank did not come up. This process then waits for it in
        vain and must end.
    """

    def __init__(self, start: EngineStart, on_failure: Callable[[BaseException], None]) -> None:
        self._patience = start.patience
        count = start.ranks.count
        self._children = [EngineChild(start.source, {}) for _ in range(1, count)]
        self._pool = ThreadPoolExecutor(max(count - 1, 1), thread_name_prefix="rank")
        self._starts: list[Future[object]] = []
        for index, child in enumerate(self._children, start=1):
            frame = dumps(replace(start, ranks=Ranks(index, count)))
            future = self._pool.submit(
                child.exchange, frame, start.patience.start_timeout_s, f"start of rank {index}"
            )
            future.add_done_callback(lambda done: _report(done, on_failure))
            self._starts.append(future)

    def wait_started(self) -> None:
        """Return when all have built their engine."""
        for future in self._starts:
            future.result()

    def tell(self, news: Stop | Cancel) -> None:
        """Pass on news for a generation."""
        for child in self._children:
            child.tell(dumps(news))

    def unfinished(self) -> tuple[Unfinished, ...]:
        """What they were drawing when they last gave a sign of life."""
        return tuple(found for child in self._children for found in child.unfinished)

    def attach(self, request: Request, fd: int) -> None:
        """Let all map an arena."""
        self._outcomes([self._begin(child, request, fd) for child in self._children])

    def run(
        self, request: Request, run_here: Callable[[Request], object], look: Callable[[], object]
    ) -> object:
        """Run a request on all ranks and put their results together.

        Parameters
        ----------
        request
            From the parent.
        run_here
            Runs this rank's part.
        look
            Called again and again while the others still compute.

        Raises
        ------
        EngineDiedError
            A rank died, or failed where the others wait for it: this engine must end.
        PlexRLError
            What the function raised, on all ranks or on the first of them.
        """
        if request.method in FIRST_ONLY:
            return run_here(request)
        own, *others = deal(request, 1 + len(self._children))
        begun = [self._begin(c, part) for c, part in zip(self._children, others, strict=True)]
        here: Future[object] = Future()
        try:
            here.set_result(run_here(own))
        except Exception as error:  # noqa: BLE001 (raised once the others are heard)
            here.set_exception(error)
        while wait(begun, _POLL_S).not_done:
            look()
        return put_together(request, self._outcomes([here, *begun]))

    def _begin(self, child: EngineChild, request: Request, fd: int | None = None) -> Future[object]:
        return self._pool.submit(
            child.exchange,
            dumps(request),
            self._patience.call_timeout_s,
            request.method,
            fd,
            self._patience.heartbeat_timeout_s,
        )

    def _outcomes(self, futures: Sequence[Future[object]]) -> list[object]:
        errors = [error for f in futures if (error := f.exception()) is not None]
        deaths = [error for error in errors if isinstance(error, EngineDiedError)]
        if deaths:
            raise EngineDiedError("\n".join(str(error) for error in deaths[::-1])) from deaths[-1]
        if errors:
            raise errors[0]
        return [future.result() for future in futures]


def meeting_folder() -> tempfile.TemporaryDirectory[str]:
    """A folder of this user's alone for the ranks to meet in."""
    return tempfile.TemporaryDirectory(prefix="plexrl-ranks-", ignore_cleanup_errors=True)


def guarded(request: Request, ranks: Ranks, run: Callable[[Request], object]) -> object:
    """Run a rank's part; an unforeseen error where others wait for this rank is its death.

    Raises
    ------
    EngineDiedError
        Of such an error: gloo's connections close when the process ends, and nobody waits on.
    """
    if ranks.count == 1 or is_shared(request.method):
        return run(request)
    try:
        return run(request)
    except PlexRLError:
        raise
    except Exception as error:
        raise EngineDiedError(
            f"rank {ranks.index} of {ranks.count} failed in {request.method} with "
            f"{type(error).__name__}: {error}"
        ) from error


def _report(done: Future[object], on_failure: Callable[[BaseException], None]) -> None:
    error = done.exception()
    if error is not None:
        on_failure(error)
