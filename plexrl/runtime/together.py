"""Runs the parts of a driver side by side, so that none of them can end without a word."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from distributed.comm import CommClosedError

LOST = "what the driver waits for was cancelled"
"""Of something a driver awaits that was cancelled by nobody who would end the driver."""

Part = Coroutine[Any, Any, None]


async def run_together(*parts: Part) -> None:
    """Run parts until all have ended; the first that fails ends the others.

    No `asyncio.TaskGroup`: it takes a part that ends cancelled for one that is done, so that the
    others wait for it for ever, and before Python 3.13 a part that fails leaves the task around it
    marked as cancelled.

    Raises
    ------
    Exception
        What a part failed with, of several that of the first one given.
    CommClosedError
        Something a part awaits was cancelled.
    """
    tasks = [asyncio.ensure_future(_told(part)) for part in parts]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
    for error in [task.exception() for task in tasks if not task.cancelled()]:
        if error is not None:
            raise error


async def _told(part: Part) -> None:
    """A part whose stray cancellation is a failure."""
    try:
        await part
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        raise CommClosedError(LOST) from None
