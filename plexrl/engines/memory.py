"""Memory of an engine's process: how much it uses, and giving it back to the system."""

from __future__ import annotations

import ctypes

import psutil
import torch


def bytes_in_use(device: torch.device) -> int:
    """Bytes this process uses: of the device's memory on a GPU, else resident in host memory."""
    if device.type == "cuda":
        return int(torch.cuda.memory_reserved(device))
    return int(psutil.Process().memory_info().rss)


def trim(device: torch.device) -> None:
    """Hand what was freed back to the system, where the allocator can."""
    if device.type == "cuda":
        torch.cuda.empty_cache()
    release = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if release is not None:
        release(0)
