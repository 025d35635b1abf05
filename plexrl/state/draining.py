"""Shares the pieces of one state between the thread that asks and one other.

Two threads saturate the disk; more would take cores from the engines.
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable, Iterable
from queue import SimpleQueue
from threading import Lock, Thread
from types import TracebackType
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


class Call:
    """Work that the other thread was woken up for, before it is known what the work is.

    A context manager: where no work comes of it, the other thread waits no longer.
    """

    __slots__ = ("_claim", "_done", "_failure", "_given", "_is_given", "_work")

    def __init__(self) -> None:
        # Bare locks: what is woken and waited for here takes a thousandth of a second.
        self._claim, self._given, self._done = Lock(), Lock(), Lock()
        self._given.acquire()
        self._done.acquire()
        self._is_given = False
        self._work: Callable[[], None] | None = None
        self._failure: BaseException | None = None

    def __enter__(self) -> Call:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if not self._is_given:
            self._given.release()

    def join(self) -> None:
        """Do the other's part; in the other thread."""
        self._given.acquire()
        # Only now: a thread that was woken up may not run again before the caller has done all.
        if not self._claim.acquire(blocking=False):
            return
        try:
            if self._work is not None:
                self._work()
        except BaseException as error:  # noqa: BLE001 - raised again in the caller
            self._failure = error
        finally:
            self._done.release()

    def share(self, own: Callable[[], None], other: Callable[[], None]) -> None:
        """Run `own` here and `other` in the other thread; once.

        `other` is called off if it was not begun when `own` is done. When either fails, this
        raises only after both have ended.
        """
        self._work, self._is_given = other, True
        self._given.release()
        try:
            own()
        finally:
            if not self._claim.acquire(blocking=False):
                self._done.acquire()
            # An error holds its frames, and they this: buffers would live on.
            self._work = None
            failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def for_all(
        self, work: Callable[[Item], Result], lanes: Iterable[Iterable[Item]]
    ) -> list[Result]:
        """`for_all`, with the thread that this woke up."""
        left = [deque(lane) for lane in lanes]
        if sum(map(len, left)) < 2:
            return [work(item) for lane in left for item in lane]
        results: list[Result] = []

        def drain(order: list[deque[Item]]) -> None:
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

        self.share(lambda: drain(left), lambda: drain(left[::-1]))
        return results


class Partner:
    """A thread that joins whoever calls it, one after the other, and sleeps between.

    It starts with the first call, and ends with `close` or with the last reference to this.

    Parameters
    ----------
    name
        Of the thread.
    """

    def __init__(self, name: str) -> None:
        self._calls: SimpleQueue[Call | None] = SimpleQueue()
        self._thread = Thread(target=_serve, args=(self._calls,), name=name, daemon=True)
        self._is_started = False
        self._lock = Lock()
        self._end = weakref.finalize(self, self._calls.put, None)

    def call(self) -> Call:
        """Wake the thread up, which takes as long as it takes to find out what is to do."""
        call = Call()
        if not self._is_started:
            with self._lock:
                if not self._is_started:
                    self._thread.start()
                    self._is_started = True
        self._calls.put(call)
        return call

    def close(self) -> None:
        """End the thread, after what it does."""
        self._end()
        if self._is_started:
            self._thread.join()


def _serve(calls: SimpleQueue[Call | None]) -> None:
    while (call := calls.get()) is not None:
        call.join()
        del call  # it holds buffers


def for_all(
    partner: Partner, work: Callable[[Item], Result], lanes: Iterable[Iterable[Item]]
) -> list[Result]:
    """Results of all items, in any order.

    The calling thread starts at the first lane, the other one at the last, so that they meet in
    one lane only: two threads that write into one file wait for each other. What the other
    thread has not begun when the caller is done is called off: where no core is free, the
    caller does all and waits for nobody. When an item fails, this returns only after no
    thread works any more: buffers are free again.

    Parameters
    ----------
    lanes
        Items that are taken in order, such as the pieces of one file.
    """
    items = [list(lane) for lane in lanes]
    # Nobody is woken up for one.
    with partner.call() if sum(map(len, items)) > 1 else Call() as call:
        return call.for_all(work, items)
