"""Runs the parts of a benchmark in child processes, as many at once as there are processors."""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from benchmarks.contract import Progress

_parts: Sequence[Callable[[], Any]] = ()
"""What the children inherit: closures cannot be sent to them."""


def run_parts(
    parts: Mapping[str, Callable[[], Any]],
    progress: Progress,
    describe: Callable[[Any], str] = lambda _result: "done",
) -> dict[str, Any]:
    """Do all parts, in no particular order, and give their results by name.

    Parameters
    ----------
    parts
        Name → function without arguments; what it returns is pickled.
    progress
        Told which part has ended, and how.
    describe
        What is said of a result at once: it stays known where a later part breaks off.
    """
    global _parts  # noqa: PLW0603
    _parts = list(parts.values())
    names, found = list(parts), {}
    context = multiprocessing.get_context("fork")
    with context.Pool(len(os.sched_getaffinity(0))) as pool:
        for index, result, seconds in pool.imap_unordered(_run, range(len(names))):
            found[names[index]] = result
            place = f"{len(found)} of {len(names)}"
            progress(f"{names[index]}: {describe(result)} ({place}, {seconds:.0f} s)")
    return found


def _run(index: int) -> tuple[int, Any, float]:
    began = time.monotonic()
    return index, _parts[index](), time.monotonic() - began
