"""Asks prompt sources in a thread: a slow one must hold up neither other jobs nor heartbeats."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from plexrl.errors import TaskTimeoutError

QUIET_S = 2.0
"""Seconds after which it is said what is waited for."""
MAX_WAIT_S = 3600.0
"""Seconds until a source that gives no prompts fails its job."""

Made = TypeVar("Made")


async def wait_asked(
    source: object, job: str, ask: Callable[[], Made], say: Callable[[str], None]
) -> Made:
    """What `ask` makes of the prompts it asks a source for.

    Parameters
    ----------
    source
        The prompt source; None: there is none.
    job
        Whose source.
    ask
        Asks it.
    say
        Told what is waited for, if it takes longer, and then that nothing is.

    Raises
    ------
    TaskTimeoutError
        The source did not answer. Its thread is left to itself: nobody can end it.
    """
    if source is None:
        return ask()
    name = f"prompt source {type(source).__qualname__}"
    asking = _in_thread(ask, f"plexrl-source-{job}")
    try:
        if not (await asyncio.wait({asking}, timeout=QUIET_S))[0]:
            say(f"its {name}")
            if not (await asyncio.wait({asking}, timeout=MAX_WAIT_S))[0]:
                raise TaskTimeoutError(
                    f"job {job!r}: its {name} gave no prompts within {MAX_WAIT_S:g} s; give "
                    "it limits of its own, or prompts that are at hand"
                )
            say("")
        return asking.result()
    finally:
        asking.cancel()


def _in_thread(ask: Callable[[], Made], name: str) -> asyncio.Future[Made]:
    """What runs in a thread of its own, which ends with the process at the latest."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Made] = loop.create_future()

    def run() -> None:
        try:
            settle, result = future.set_result, ask()
        except BaseException as error:  # noqa: BLE001 (it is the job's)
            settle, result = future.set_exception, error  # type: ignore[assignment]
        # The loop may be over by now, and whoever waited gone.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(lambda: None if future.done() else settle(result))

    threading.Thread(target=run, name=name, daemon=True).start()
    return future
