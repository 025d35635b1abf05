"""Where the processor time of a scheduler's thread goes: to the plugin, or to Dask."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from typing import Any

PLUGIN, DASK = "plugin", "dask"
_HOOKS = ("update_graph", "transition", "add_worker", "remove_worker", "_drain", "_wake", "_settle")
_ASYNC_HOOKS = ("handle_report", "handle_driver")


class Stopwatch:
    """Adds up the thread's processor seconds by who spends them; calls may nest.

    Attributes
    ----------
    seconds : Counter
        Name → seconds.
    """

    def __init__(self) -> None:
        self.seconds: Counter[str] = Counter()
        self._stack = [""]
        self._since_s = time.thread_time()

    def reading(self) -> Counter[str]:
        """Seconds so far, up to now."""
        self._count()
        return Counter(self.seconds)

    def enter(self, name: str) -> None:
        """From now on the time is this one's."""
        self._count()
        self._stack.append(name)

    def leave(self) -> None:
        """From now on the time is that of whoever was before."""
        self._count()
        self._stack.pop()

    def _count(self) -> None:
        now_s = time.thread_time()
        self.seconds[self._stack[-1]] += now_s - self._since_s  # type: ignore[assignment]
        self._since_s = now_s

    def watch(self, owner: Any, method: str, name: str) -> None:
        """Count a method of an object."""
        inner = getattr(owner, method)

        def watched(*args: Any, **kwargs: Any) -> Any:
            self.enter(name)
            try:
                return inner(*args, **kwargs)
            finally:
                self.leave()

        setattr(owner, method, watched)

    def watch_async(self, owner: Any, method: str, name: str) -> None:
        """Count a coroutine method that never waits."""
        inner: Callable[..., Any] = getattr(owner, method)

        async def watched(*args: Any, **kwargs: Any) -> Any:
            self.enter(name)
            try:
                return await inner(*args, **kwargs)
            finally:
                self.leave()

        setattr(owner, method, watched)


def watch_plugin(stopwatch: Stopwatch, plugin: Any, scheduler: Any) -> None:
    """Count what a plugin does for functions, and not what Dask does when the plugin asks."""
    for hook in _HOOKS:
        stopwatch.watch(plugin, hook, PLUGIN)
    for hook in _ASYNC_HOOKS:
        stopwatch.watch_async(plugin, hook, PLUGIN)
    stopwatch.watch(scheduler, "transitions", DASK)
