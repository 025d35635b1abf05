"""Runs the parts of a benchmark in child processes, as many at once as there are processors."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from benchmarks.contract import Progress

_parts: Sequence[Callable[[], Any]] = ()
"""What the children inherit: closures cannot be sent to them."""


def run_parts(parts: Mapping[str, Callable[[], Any]], progress: Progress) -> dict[str, Any]:
    """Do all parts, in no particular order, and give their results by name.

    Parameters
    ----------
    parts
        Name → function without arguments; what it returns is pickled.
    progress
        Told which part has ended.
    """
    global _parts  # noqa: PLW0603
    _parts = list(parts.values())
    names, found = list(parts), {}
    context = multiprocessing.get_context("fork")
    with context.Pool(len(os.sched_getaffinity(0))) as pool:
        for index, result in pool.imap_unordered(_run, range(len(names))):
            found[names[index]] = result
            progress(f"{names[index]} ({len(found)} of {len(names)})")
    return found


def _run(index: int) -> tuple[int, Any]:
    return index, _parts[index]()
