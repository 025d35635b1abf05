"""Shows how far a job is while somebody waits for it: in a notebook, a terminal or a pipe."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from typing import Any, TextIO

from plexrl.core.status import JobStatus
from plexrl.markup import seconds
from plexrl.runtime.notebook import run_html

SHARES = 10
"""Lines of a whole job where lines cannot be written over: one for every tenth."""

Show = Callable[[JobStatus], None]
"""Takes a status, as often as there is a new one."""


def progress_line(job: JobStatus) -> str:
    """A job in one line."""
    told = [f"{job.name}: {job.state}, {job.iteration}/{job.iterations}"]
    if job.reward_first is not None and job.reward_last is not None:
        told.append(f"reward {job.reward_first:.2f} → {job.reward_last:.2f}")
    if job.iteration_s is not None:
        told.append(f"{job.iteration_s:.2f} s/iteration")
        if not job.state.is_terminal:
            told.append(f"ends in {seconds(job.left_s)}")
    why = job.error.strip().splitlines()[0] if job.error.strip() else job.waiting
    if why:
        told.append(why if job.state.is_terminal else f"waits for {why}")
    return ", ".join(told)


def shower(stream: TextIO | None = None) -> Show:
    """The display that suits where the caller is.

    Parameters
    ----------
    stream
        Where lines go; standard output by default. Not used in a notebook.
    """
    if stream is None and _is_notebook():
        return _in_notebook()
    stream = sys.stdout if stream is None else stream
    return _in_terminal(stream) if stream.isatty() else _in_pipe(stream)


def _is_notebook() -> bool:
    """Whether this process is the kernel of a notebook; IPython in a terminal is none."""
    found = sys.modules.get("IPython")
    shell = found.get_ipython() if found is not None else None
    return shell is not None and hasattr(shell, "kernel")


def _in_notebook() -> Show:
    display: Any = importlib.import_module("IPython.display")
    handle: Any = None

    def show(job: JobStatus) -> None:
        nonlocal handle
        shown = display.HTML(run_html(job))
        if handle is None:
            handle = display.display(shown, display_id=True)
        else:
            handle.update(shown)

    return show


def _in_terminal(stream: TextIO) -> Show:
    def show(job: JobStatus) -> None:
        stream.write(f"\r\x1b[2K{progress_line(job)}" + ("\n" if job.state.is_terminal else ""))
        stream.flush()

    return show


def _in_pipe(stream: TextIO) -> Show:
    told = -1

    def show(job: JobStatus) -> None:
        nonlocal told
        share = SHARES * job.iteration // max(1, job.iterations)
        if share > told or job.state.is_terminal:
            told = share
            stream.write(f"{progress_line(job)}\n")
            stream.flush()

    return show
