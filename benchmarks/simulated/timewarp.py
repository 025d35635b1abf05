"""An event loop whose clock jumps to the next thing to do, so that waiting takes no time."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, Future
from typing import Any


class AtOnce(Executor):
    """Runs everything in the calling thread."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Run the function now."""
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:  # noqa: BLE001 (it is the caller's)
            future.set_exception(error)
        return future


class TimeWarpLoop(asyncio.SelectorEventLoop):
    """Runs on a clock of its own that starts at 0.

    What would run in a thread runs at once, so that the order of events is the same every time.
    """

    def __init__(self) -> None:
        self._now_s = 0.0
        super().__init__(_WarpSelector(self._pass))

    def time(self) -> float:
        """Seconds since the loop was made, on its own clock."""
        return self._now_s

    def run_in_executor(  # type: ignore[override]
        self, executor: Executor | None, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        """Run the function now."""
        del executor
        return asyncio.wrap_future(AtOnce().submit(func, *args), loop=self)

    def _pass(self, seconds: float) -> None:
        self._now_s += seconds


class _WarpSelector(selectors.BaseSelector):
    """Never waits: where nothing is ready, the clock moves instead."""

    def __init__(self, pass_s: Callable[[float], None]) -> None:
        self._inner = selectors.DefaultSelector()
        self._pass_s = pass_s

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = self._inner.select(0)
        if not ready and timeout is None:
            raise RuntimeError("nothing is left that could ever happen in this loop")
        if not ready and timeout:
            self._pass_s(timeout)
        return ready

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        return self._inner.register(fileobj, events, data)

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._inner.unregister(fileobj)

    def modify(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        return self._inner.modify(fileobj, events, data)

    def close(self) -> None:
        self._inner.close()

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return self._inner.get_map()
