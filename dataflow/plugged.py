"""What users plug in may raise anything: how an error of ours tells it.

Our errors cross processes, so they hold no cause: one that cannot be pickled, or that is huge,
would take the kind of ours away.
"""

from __future__ import annotations

import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from dataflow.errors import DataflowError

_T = TypeVar("_T")

RAISED = (Exception, SystemExit, KeyboardInterrupt, GeneratorExit)
"""What is caught of a plugged-in function; the last three would end the worker it runs in."""

MAX_TEXT = 1000
"""Characters that are repeated of what was raised."""


def called(
    work: Callable[[], _T],
    failure: Callable[[str], DataflowError],
    *,
    passing: tuple[type[DataflowError], ...] = (DataflowError,),
) -> _T:
    """What `work` returns, which calls a plugged-in function.

    Parameters
    ----------
    work
        A function of ours without arguments, so that the next place is in the plugged-in one.
    failure
        The error to raise for what was raised, which it is told.
    passing
        Errors that pass as they are.
    """
    try:
        return work()
    except passing:
        raise
    except RAISED as error:
        problem = told(error, depth=2)
    # Here, and not in a context manager, whose errors carry along what was raised.
    raise failure(problem)


def told(error: BaseException, depth: int = 1) -> str:
    """What a function raised, and where: ``ValueError (rewards.py, line 12): no number``.

    To be called where it was caught.

    Parameters
    ----------
    depth
        Calls between the place where it was caught and the line of the function itself.

    Raises
    ------
    KeyboardInterrupt
        It is one in the main thread: somebody has pressed Ctrl-C.
    """
    if isinstance(error, KeyboardInterrupt) and _is_main():
        raise error
    frames = traceback.extract_tb(error.__traceback__, limit=depth + 1)[depth:]
    place = "".join(f" ({Path(frame.filename).name}, line {frame.lineno})" for frame in frames)
    return f"{type(error).__name__}{place}: {str(error)[:MAX_TEXT]}"


def _is_main() -> bool:
    return threading.current_thread() is threading.main_thread()
