"""What vLLM cannot do with its memory by itself: give it back on a CPU, and clean its cache.

Its sleep mode exists on GPUs only. Here the storages of weights and of the key-value cache shrink
to nothing and grow again in place, so that every reference vLLM holds to them stays good. Buffers
keep their values: the rotary tables among them are never loaded again.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from plexrl.engines.memory import trim


class WorkerMemory:
    """Methods that vLLM adds to its worker (``worker_extension_cls``)."""

    model_runner: Any
    """The worker's own."""
    _freed: list[tuple[torch.UntypedStorage, int]]
    """Storages that `plexrl_release` emptied, with their sizes."""

    def plexrl_release(self) -> None:
        """Free weights and key-value cache; no request may run or wait."""
        self._freed = [(storage, storage.nbytes()) for storage in self._storages()]
        for storage, _ in self._freed:
            storage.resize_(0)
        for module in self.model_runner.model.modules():
            # The packed copy of a linear layer's weight; loading weights makes another one.
            if hasattr(module, "cpu_linear"):
                del module.cpu_linear
        trim(torch.device("cpu"))

    def plexrl_reclaim(self) -> None:
        """Take the memory again; weights and cache hold nothing of use until weights are loaded."""
        for storage, nbytes in self._freed:
            storage.resize_(nbytes)
        self._freed = []
        self.plexrl_clear_cache()

    def plexrl_clear_cache(self) -> None:
        """Zero the key-value cache: a NaN in it spreads by attention even where it is masked."""
        for tensor in self.model_runner.kv_caches:
            tensor.zero_()

    def _storages(self) -> Iterator[torch.UntypedStorage]:
        seen: set[int] = set()
        tensors = [*self.model_runner.model.parameters(), *self.model_runner.kv_caches]
        for tensor in tensors:
            storage = tensor.untyped_storage()
            if storage.nbytes() and storage.data_ptr() not in seen:
                seen.add(storage.data_ptr())
                yield storage
