"""What users plug in may raise anything: how an error of ours tells it.

Our errors cross processes, so they hold no cause: one that cannot be pickled, or that is huge,
would take the kind of ours away.
"""

from __future__ import annotations

import threading
import traceback
from pathlib import Path

RAISED = (Exception, SystemExit, KeyboardInterrupt, GeneratorExit)
"""What is caught of a plugged-in function; the last three would end the worker it runs in."""

MAX_TEXT = 1000
"""Characters that are repeated of what was raised."""


def told(error: BaseException) -> str:
    """What a function raised, and where: ``ValueError (rewards.py, line 12): no number``.

    To be called where it was caught.

    Raises
    ------
    KeyboardInterrupt
        It is one in the main thread: somebody has pressed Ctrl-C.
    """
    if isinstance(error, KeyboardInterrupt) and _is_main():
        raise error
    # The first place is where it was called, the second the line of the function itself.
    frames = traceback.extract_tb(error.__traceback__, limit=2)
    place = f" ({Path(frames[1].filename).name}, line {frames[1].lineno})" if frames[1:] else ""
    return f"{type(error).__name__}{place}: {str(error)[:MAX_TEXT]}"


def _is_main() -> bool:
    return threading.current_thread() is threading.main_thread()
