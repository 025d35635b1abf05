"""Shares the chunks of one state between the thread that asks and a bounded number of others."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Executor, wait
from typing import TypeVar

NUM_THREADS = 2
"""Move chunks at once: two saturate the disk, more would take cores from the engines."""

Item = TypeVar("Item")
Result = TypeVar("Result")


def for_all(
    executor: Executor, work: Callable[[Item], list[Result]], items: Iterable[Item]
) -> list[Result]:
    """Results of all items, in any order.

    The calling thread takes items too, so that a single one needs no handover. When one
    fails, this returns only after no thread works any more: buffers are free again.
    """
    left = deque(items)

    def drain() -> list[Result]:
        results: list[Result] = []
        while True:
            try:
                item = left.popleft()
            except IndexError:
                return results
            try:
                results += work(item)
            except BaseException:
                left.clear()
                raise

    helpers = [executor.submit(drain) for _ in range(min(NUM_THREADS, len(left)) - 1)]
    try:
        results = drain()
    finally:
        wait(helpers)
    for helper in helpers:
        results += helper.result()
    return results
