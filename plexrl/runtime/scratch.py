"""Where a worker's process and its children put temporary files: where Dask takes them away."""

from __future__ import annotations

import os
import tempfile

MAX_LENGTH = 70
"""Longest path that leaves room for the name of a socket in it: those have at most 107 bytes, and
`multiprocessing` adds 31."""


def keep_scratch(folder: str) -> None:
    """Have rewards, tools and engines make their temporary files in a worker's own folder.

    Dask removes it when the worker ends, and that of a worker that was killed when another one
    starts beside it.

    Parameters
    ----------
    folder
        The worker's folder; where its path is too long, temporary files stay where they were.
    """
    if len(os.fsencode(folder)) <= MAX_LENGTH:
        os.environ["TMPDIR"] = tempfile.tempdir = folder
