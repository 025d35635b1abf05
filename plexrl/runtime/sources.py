"""Asks prompt sources in a thread: a slow one must hold up neither other jobs nor heartbeats."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress

from dataflow.iteration import Iteration
from dataflow.jobs import JobSpec
from plexrl.errors import TaskTimeoutError

QUIET_S = 2.0
"""Seconds after which it is said what is waited for."""
MAX_WAIT_S = 3600.0
"""Seconds until a source that gives no prompts fails its job."""

Build = Callable[[], Iteration]


async def wait_built(job: JobSpec, build: Build, say: Callable[[str], None]) -> Iteration:
    """The iteration that `build` makes, for which it asks the job's prompt source.

    Parameters
    ----------
    job
        The job.
    build
        Makes the iteration.
    say
        Told what is waited for, if it takes longer, and then that nothing is.

    Raises
    ------
    TaskTimeoutError
        The source did not answer. Its thread is left to itself: nobody can end it.
    """
    if job.prompts is None:
        return build()
    source = f"prompt source {type(job.prompts).__qualname__}"
    building = _in_thread(build, f"plexrl-source-{job.name}")
    try:
        if not (await asyncio.wait({building}, timeout=QUIET_S))[0]:
            say(f"its {source}")
            if not (await asyncio.wait({building}, timeout=MAX_WAIT_S))[0]:
                raise TaskTimeoutError(
                    f"job {job.name!r}: its {source} gave no prompts within {MAX_WAIT_S:g} s; give "
                    "it limits of its own, or prompts that are at hand"
                )
            say("")
        return building.result()
    finally:
        building.cancel()


def _in_thread(build: Build, name: str) -> asyncio.Future[Iteration]:
    """What runs in a thread of its own, which ends with the process at the latest."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Iteration] = loop.create_future()

    def run() -> None:
        try:
            settle, result = future.set_result, build()
        except BaseException as error:  # noqa: BLE001 (it is the job's)
            settle, result = future.set_exception, error  # type: ignore[assignment]
        # The loop may be over by now, and whoever waited gone.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(lambda: None if future.done() else settle(result))

    threading.Thread(target=run, name=name, daemon=True).start()
    return future
