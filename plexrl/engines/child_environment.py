"""The environment of the Python processes engines run in."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

_FIXED = {
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "HF_HUB_OFFLINE": "1",
    "MALLOC_MMAP_THRESHOLD_": str(32 << 20),
    "MALLOC_TRIM_THRESHOLD_": str(256 << 20),
}
"""One thread, for results that depend on nothing else; models come from folders only; and glibc
keeps freed tensors: Dask sets a trim threshold in its workers, which a child inherits and which
turns off glibc's own adaption, so that every tensor would be mapped and faulted in anew (a train
function of the tiny model takes 238 ms then, 117 ms with these)."""


def child_command(module: str, *args: str) -> list[str]:
    """Command that runs a module of this installation, whatever lies in the current folder."""
    return [sys.executable, "-P", "-m", module, *args]


def child_environment(env: Mapping[str, str] | None = None) -> dict[str, str]:
    """Environment variables of a child, `env` on top.

    The child finds every module that this process can import, a user's own losses too.
    """
    search_path = os.pathsep.join(path or os.getcwd() for path in sys.path)  # noqa: PTH109
    return {**os.environ, "PYTHONPATH": search_path, **_FIXED, **(env or {})}
