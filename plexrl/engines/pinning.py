"""Page-locks mapped arenas on CUDA, so that the device copies from them at the bus's speed.

An arena is mapped once and reused for many versions, so it is locked once too: locking takes
longer than the copy it speeds up.
"""

from __future__ import annotations

import ctypes
import logging
from typing import Any, Protocol

logger = logging.getLogger("plexrl.engines")


class CudaRuntime(Protocol):
    """What is used of ``torch.cuda.cudart()``; each call returns 0 if it succeeded."""

    def cudaHostRegister(self, address: int, nbytes: int, flags: int) -> Any:  # noqa: ANN401, N802
        """Page-lock mapped memory."""
        ...

    def cudaHostUnregister(self, address: int) -> Any:  # noqa: ANN401, N802
        """Unlock it."""
        ...


class Pinning:
    """Page-locked arenas of one engine process.

    Parameters
    ----------
    runtime
        None where the engine computes on no CUDA device: nothing is locked.
    """

    def __init__(self, runtime: CudaRuntime | None) -> None:
        self._runtime = runtime
        self._addresses: dict[str, int] = {}

    def pin(self, name: str, view: memoryview) -> bool:
        """Lock an arena; where the system refuses, copies stay correct and are slower."""
        if self._runtime is None or not view.nbytes:
            return False
        address = ctypes.addressof(ctypes.c_char.from_buffer(view))
        code = int(self._runtime.cudaHostRegister(address, view.nbytes, 0))
        if code:
            logger.warning(
                "arena %s of %d bytes is not page-locked (CUDA error %d): swaps are slower; "
                "raise the limit of locked memory (ulimit -l)",
                name,
                view.nbytes,
                code,
            )
            return False
        self._addresses[name] = address
        return True

    def unpin(self, name: str) -> None:
        """Unlock an arena before it is unmapped; one that is not locked is fine."""
        address = self._addresses.pop(name, None)
        if address is not None and self._runtime is not None:
            self._runtime.cudaHostUnregister(address)


def pinning_of_process() -> Pinning:
    """Pinning by torch's CUDA runtime, if the engine of this process has started one."""
    import torch

    is_started = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    return Pinning(torch.cuda.cudart() if is_started else None)  # type: ignore[no-untyped-call]
