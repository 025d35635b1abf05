"""Says what a command does while it takes long."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

PATIENCE_S = 2.0
"""Seconds after which people wonder whether anything happens."""


@contextmanager
def waiting(console: Console, told: str) -> Iterator[None]:
    """Show what is done meanwhile: with a clock on a terminal, elsewhere as a line if it is slow.

    Parameters
    ----------
    console
        Standard error.
    told
        What is done, as in ``reading every version``.
    """
    if console.is_terminal:
        columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
        with Progress(*columns, console=console, transient=True) as progress:
            progress.add_task(told, total=None)
            yield
        return
    timer = threading.Timer(
        PATIENCE_S, console.print, [f"{told} …"], {"highlight": False, "markup": False}
    )
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
