"""A resident network that several ranks hold together: each a slice of every tensor (FSDP2).

The arena is that of one rank: each rank reads and writes its own rows of every weight and
moment there, so versions, exports and digests do not depend on the number of ranks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch
from transformers import PreTrainedModel
from transformers.modeling_layers import GradientCheckpointingLayer

from plexrl.core.layout import ROLE_WEIGHTS, TensorSlot
from plexrl.engines.lora_network import fresh_adapters
from plexrl.engines.network import (
    arena_tensor,
    build_model,
    export_tensors,
    fill_slots,
    folder_tensors,
    frozen_error,
    load_model,
    require_writable,
    slot_view,
    tensors_sha256,
)
from plexrl.engines.optimized import Optimized
from plexrl.engines.protocol import ModelSource
from plexrl.engines.ranks import Ranks
from plexrl.errors import EngineError

if TYPE_CHECKING:
    from torch.distributed.fsdp import FSDPModule
    from torch.distributed.tensor import DTensor


class ShardedNetwork:
    """The share of one rank; the others do the same at the same time.

    Parameters
    ----------
    source
        Folder that gives architecture and first weights, and whether there is an optimizer.
    device
        Torch device of this rank.
    ranks
        Which rank this is; all have joined.
    """

    def __init__(self, source: ModelSource, device: torch.device, ranks: Ranks) -> None:
        self.source = source
        self.device = device
        self.ranks = ranks
        self.model, named, self.layout = build_model(source)
        for parameter in named.values():
            parameter.requires_grad_(source.is_trainable)
        if source.lora is not None:
            fresh = fresh_adapters(self.shapes)
            for name, parameter in named.items():
                parameter.data.copy_(fresh[name])
        self.model.to(device)
        self._modules = _shard(self.model, device, ranks)
        self._sharded = _sharded_parameters(self.model)
        self._own = {slot.name: self._share(slot) for slot in self.layout.slots}
        self._steps = [torch.zeros((), device=device) for _ in self._own_names()]
        self._released: dict[str, int] | None = None
        self.context_limit = int(getattr(self.model.config, "max_position_embeddings", 2**31))

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Tensor → whole shape of the weights of a state, in layout order."""
        return {slot.name: slot.shape for slot in self.layout.role(ROLE_WEIGHTS)}

    def load(self, arena: memoryview) -> None:
        """Copy this rank's slices of a state from an arena.

        Raises
        ------
        EngineError
            The arena is smaller than the layout.
        """
        stored = arena_tensor(arena, self.layout, self.source)
        self._reclaim()
        for slot in self.layout.slots:
            self._own[slot.name].copy_(self._slice(slot_view(stored, slot)))
        for step in self._steps:
            step.copy_(self._own["step"])

    def store(self, arena: memoryview) -> None:
        """Copy this rank's slices of the state into a writable arena, which all ranks share.

        Raises
        ------
        EngineError
            The arena is smaller than the layout, or read-only.
        """
        require_writable(arena, "store")
        target = arena_tensor(arena, self.layout, self.source)
        if self._steps:
            self._own["step"].copy_(self._steps[0])
        for slot in self.layout.slots:
            self._slice(slot_view(target, slot)).copy_(self._own[slot.name])

    def read_folder(self, folder: str, arena: memoryview) -> None:
        """Write weights of a folder and a fresh optimizer into a writable arena; one rank does.

        Raises
        ------
        ModelFolderError
            The folder's tensors are not those of this network.
        """
        require_writable(arena, "read")
        tensors = folder_tensors(folder, self.source, self.shapes)
        fill_slots(arena_tensor(arena, self.layout, self.source), self.layout, tensors)

    @contextmanager
    def whole(self) -> Iterator[None]:
        """Every rank holds all weights: it may then run forwards that the others do not run."""
        for module in self._modules:
            module.set_reshard_after_forward(False, recurse=False)
            module.unshard()
        try:
            yield
        finally:
            for module in self._modules:
                module.reshard()
                module.set_reshard_after_forward(True, recurse=False)

    def optimized(self) -> list[Optimized]:
        """Slices of what is trained, those of the rank.

        Raises
        ------
        EngineError
            The network is frozen.
        """
        if not self.source.is_trainable:
            raise frozen_error(self.source)
        own = self._own
        return [
            Optimized(own[name], own[f"exp_avg/{name}"], own[f"exp_avg_sq/{name}"], step)
            for name, step in zip(self._own_names(), self._steps, strict=True)
        ]

    def zero_gradients(self) -> None:
        """Forget the gradients."""
        for name in self.shapes:
            self._sharded[name].grad = None

    def gradients(self) -> list[torch.Tensor]:
        """Gradients of `optimized`, in its order, summed over all ranks."""
        found = []
        for name in self._own_names():
            gradient = self._sharded[name].grad
            found.append(
                torch.zeros_like(self._own[name]) if gradient is None else _local(gradient)
            )
        return found

    def snapshot(self) -> list[torch.Tensor]:
        """Copy of this rank's slices and step counts."""
        return [tensor.clone() for tensor in self._changing()]

    def restore(self, snapshot: Sequence[torch.Tensor]) -> None:
        """Go back to a copy."""
        for tensor, copy in zip(self._changing(), snapshot, strict=True):
            tensor.copy_(copy)

    def weights_sha256(self) -> str:
        """SHA-256 over names and bytes of the weights, in layout order."""
        return tensors_sha256((name, self._whole(name)) for name in self.shapes)

    def export(self, folder: str) -> None:
        """Write a Hugging Face folder, or adapters as one of peft; the first rank does."""
        tensors = {name: self._whole(name) for name in self.shapes}
        if self.ranks.is_first:
            export_tensors(folder, self.source, tensors)

    def release(self) -> None:
        """Give the memory of weights, moments and gradients back; `load` takes it again."""
        if self._released is not None:
            return
        if self.source.is_trainable:
            self.zero_gradients()
        tensors = self._resident()
        self._released = {name: t.untyped_storage().nbytes() for name, t in tensors.items()}
        for tensor in tensors.values():
            tensor.untyped_storage().resize_(0)

    def require_weights(self) -> None:
        """Raise EngineError unless a state is loaded."""
        if self._released is not None:
            raise EngineError(
                f"the engine of {self.source.folder!r} has released its memory; load a state first"
            )

    def _reclaim(self) -> None:
        if self._released is None:
            return
        for name, tensor in self._resident().items():
            tensor.untyped_storage().resize_(self._released[name])
        self._released = None
        frozen = self._sharded.keys() - self.shapes.keys()
        if frozen:
            stored = dict(load_model(self.source.folder, self.source.head).named_parameters())
            for name in frozen:
                _local(self._sharded[name]).copy_(self._slice(stored[name].data))

    def _resident(self) -> dict[str, torch.Tensor]:
        """All slices that this rank holds, those of a frozen base too."""
        return {**{name: _local(p) for name, p in self._sharded.items()}, **self._own}

    def _changing(self) -> list[torch.Tensor]:
        return [*self._own.values(), *self._steps]

    def _own_names(self) -> list[str]:
        """Trained tensors of which this rank has any row: small ones may not go round."""
        if not self.source.is_trainable:
            return []
        return [name for name in self.shapes if self._own[name].numel()]

    def _share(self, slot: TensorSlot) -> torch.Tensor:
        """Slice of a slot that the rank holds; that of a weight is the network's own memory."""
        if slot.role == ROLE_WEIGHTS:
            return _local(self._sharded[slot.name])
        whole = torch.empty(slot.shape, dtype=getattr(torch, slot.dtype), device="meta")
        return torch.zeros_like(self._slice(whole), device=self.device)

    def _slice(self, whole: torch.Tensor) -> torch.Tensor:
        """Rows of a tensor that the rank holds, as FSDP2 cuts it; a scalar is held by all."""
        if whole.dim() == 0:
            return whole
        parts = whole.chunk(self.ranks.count)
        return parts[self.ranks.index] if self.ranks.index < len(parts) else whole[:0]

    def _whole(self, name: str) -> torch.Tensor:
        whole: torch.Tensor = self._sharded[name].full_tensor().detach()
        return whole


def _shard(model: PreTrainedModel, device: torch.device, ranks: Ranks) -> list[FSDPModule]:
    """Shard layer by layer, so that a forward holds few of them whole at a time.

    Returns
    -------
    list
        The parts that are gathered one at a time.

    Raises
    ------
    EngineError
        This torch is too old.
    """
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import FSDPModule, fully_shard

    if not hasattr(FSDPModule, "set_force_sum_reduction_for_comms"):
        raise EngineError(
            f"torch {torch.__version__} cannot add gradients up over ranks; install a newer one "
            "(2.13 is tested), or set plexrl.engines.ranks to 1"
        )
    mesh = init_device_mesh(device.type, (ranks.count,))
    for layer in [m for m in model.modules() if isinstance(m, GradientCheckpointingLayer)]:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    parts = [module for module in model.modules() if isinstance(module, FSDPModule)]
    for part in parts:
        # Losses are normalised by global counts: gradients add up, and gloo cannot average.
        part.set_force_sum_reduction_for_comms(True)
        part.set_gradient_divide_factor(1.0)
    return parts


def _sharded_parameters(model: PreTrainedModel) -> dict[str, DTensor]:
    from torch.distributed.tensor import DTensor

    return {name: p for name, p in model.named_parameters() if isinstance(p, DTensor)}


def _local(tensor: torch.Tensor) -> torch.Tensor:
    """The rows this rank holds, sharing their memory."""
    own: torch.Tensor = tensor.detach().to_local()  # type: ignore[attr-defined]
    return own
