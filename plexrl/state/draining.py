"""Shares the pieces of one state between the thread that asks and a bounded number of others."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Executor
from typing import TypeVar

NUM_THREADS = 2
"""Move pieces at once: two saturate the disk, more would take cores from the engines."""

Item = TypeVar("Item")
Result = TypeVar("Result")


def for_all(
    executor: Executor, work: Callable[[Item], Result], lanes: Iterable[Iterable[Item]]
) -> list[Result]:
    """Results of all items, in any order.

    The calling thread starts at the first lane, another one at the last, so that they meet in
    one lane only: two threads that write into one file wait for each other. What the other
    thread has not begun when the caller is done is called off: where no core is free, the
    caller does all and waits for nobody. When an item fails, this returns only after no
    thread works any more: buffers are free again.

    Parameters
    ----------
    lanes
        Items that are taken in order, such as the pieces of one file.
    """
    left = [deque(lane) for lane in lanes]

    def drain(order: list[deque[Item]]) -> list[Result]:
        results: list[Result] = []
        for lane in order:
            while True:
                try:
                    item = lane.popleft()
                except IndexError:
                    break
                try:
                    results.append(work(item))
                except BaseException:
                    for other in left:
                        other.clear()
                    raise
        return results

    num_helpers = min(NUM_THREADS, sum(map(len, left))) - 1
    helpers = [executor.submit(drain, left[::-1]) for _ in range(num_helpers)]
    results: list[Result] = []
    try:
        results += drain(left)
    finally:
        begun = [helper for helper in helpers if not helper.cancel()]
        failures = [helper.exception() for helper in begun]
    for helper, failure in zip(begun, failures, strict=True):
        if failure is not None:
            raise failure
        results += helper.result()
    return results
