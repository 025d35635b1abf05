"""The end of a job: what it learned is in the store before it counts as finished."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence

from dataflow.calls import VersionToken
from plexrl.core.states import StateRef
from plexrl.errors import StateError
from plexrl.state.opening import open_store

logger = logging.getLogger(__name__)

POLL_S = 0.02
QUIET_S = 1.0
"""Seconds after which it is said what is waited for."""
MAX_WAIT_S = 15.0
"""Seconds until a job counts as finished although its last version is not in the store."""


async def until_stored(
    store: str,
    newest: Sequence[VersionToken],
    say: Callable[[str], None],
    check: Callable[[], Awaitable[None]],
) -> None:
    """Wait until these versions are in the store; not for ever, and with a warning if in vain.

    Where the store cannot be read, its groups write them once it can be.

    Parameters
    ----------
    store
        Folder or URL of the states.
    newest
        Versions that the last iteration made; where a job may be over they are on their way to the
        store (`dataflow.calls.LLMCall.may_be_last`).
    say
        Told what is waited for, if it takes longer.
    check
        Awaited then, and before the wait is given up: raises if no group has them any more, which
        ends the wait.
    """
    refs = [StateRef(token.job, token.model, token.version) for token in newest]
    started_s = time.monotonic()
    is_said = False
    while missing := await asyncio.to_thread(_missing, store, refs):
        names = ", ".join(map(str, missing))
        waited_s = time.monotonic() - started_s
        if waited_s > MAX_WAIT_S:
            await check()
            # The check may take long, and what it looked for may be written meanwhile.
            if missing := await asyncio.to_thread(_missing, store, refs):
                logger.warning(
                    "job %s has finished, and %s is not in the store after %g s; it is written as "
                    "soon as it can be",
                    missing[0].job,
                    ", ".join(map(str, missing)),
                    MAX_WAIT_S,
                )
            return
        if waited_s > QUIET_S and not is_said:
            is_said = True
            say(f"the store: {names} is not written yet")
            await check()
        await asyncio.sleep(max(POLL_S, waited_s / 20))


def _missing(store: str, refs: Sequence[StateRef]) -> list[StateRef]:
    """Those that are not in the store; none where it cannot be read."""
    if not refs:
        return []
    try:
        with open_store(store, read_only=True) as states:
            return [ref for ref in refs if not states.contains(ref)]
    except (OSError, StateError):
        # A job that has run to its end does not fail of a look.
        return []
