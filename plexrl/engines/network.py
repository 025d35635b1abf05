"""A resident network whose weights and optimizer moments are views into one flat buffer."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoModelForTokenClassification, PreTrainedModel

from plexrl.core.layout import ROLE_WEIGHTS, StateLayout, TensorSlot, pack
from plexrl.engines.adapters import check_adapter_folder
from plexrl.engines.folders import HEAD_VALUE, VALUE_HEADS, check_folder, state_slots
from plexrl.engines.lora_network import (
    add_adapters,
    fresh_adapters,
    read_adapters,
    write_adapters,
)
from plexrl.engines.protocol import ModelSource
from plexrl.errors import EngineError, ModelFolderError

_ATTENTION_KINDS = {"full_attention", "sliding_attention"}
"""Layer types whose cache is keys and values by position."""


class Network:
    """A decoder-only network on a device, and the flat buffer its state lives in.

    Parameters
    ----------
    source
        Folder that gives architecture and first weights, and whether there is an optimizer.
    device
        Torch device the buffer lies on.
    """

    def __init__(self, source: ModelSource, device: torch.device) -> None:
        self.source = source
        self.device = device
        self.model = _load_model(source.folder, source.head)
        lora = source.lora
        named = (
            dict(self.model.named_parameters())
            if lora is None
            else add_adapters(self.model, source.folder, lora)
        )
        self.layout: StateLayout = pack(
            state_slots({n: tuple(p.shape) for n, p in named.items()}, source.is_trainable)
        )
        self.flat = torch.zeros(self.layout.nbytes, dtype=torch.uint8, device=device)
        self.model.to(device)
        for slot in self.layout.role(ROLE_WEIGHTS):
            view = slot_view(self.flat, slot)
            view.copy_(named[slot.name].data)
            named[slot.name].data = view
        self.weights_nbytes = _weights_nbytes(self.layout)
        self.weights = self.region(0)
        self.grads = torch.zeros_like(self.weights) if source.is_trainable else None
        for parameter in named.values():
            parameter.requires_grad_(source.is_trainable)
        if lora is not None:
            self._fill(self.flat, fresh_adapters(self.shapes))
        if self.grads is not None:
            grad_bytes = self.grads.view(torch.uint8)
            for slot in self.layout.role(ROLE_WEIGHTS):
                named[slot.name].grad = slot_view(grad_bytes, slot)
        self.is_released = False
        self.context_limit = int(getattr(self.model.config, "max_position_embeddings", 2**31))

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Tensor → shape of the weights of a state, in layout order."""
        return {slot.name: slot.shape for slot in self.layout.role(ROLE_WEIGHTS)}

    def region(self, index: int) -> torch.Tensor:
        """Weights (0), first (1) or second (2) moments as one flat float32 tensor."""
        start = index * self.weights_nbytes
        return self.flat[start : start + self.weights_nbytes].view(torch.float32)

    def load(self, arena: memoryview) -> None:
        """Copy a state from an arena into the buffer.

        Raises
        ------
        EngineError
            The arena is smaller than the layout.
        """
        source = self._arena_tensor(arena)
        self._reclaim()
        self.flat.copy_(source)

    def release(self) -> None:
        """Give the memory of weights, moments and gradients back; `load` takes it again."""
        if self.is_released:
            return
        self.is_released = True
        for tensor in self._own_tensors():
            tensor.untyped_storage().resize_(0)
        for parameter in self._frozen():
            parameter.data = torch.empty(0, device=self.device)

    def require_weights(self) -> None:
        """Raise EngineError unless a state is loaded."""
        if self.is_released:
            raise EngineError(
                f"the engine of {self.source.folder!r} has released its memory; load a state first"
            )

    def _reclaim(self) -> None:
        if not self.is_released:
            return
        for tensor in self._own_tensors():
            tensor.untyped_storage().resize_(tensor.nbytes)
        if self.source.lora is not None:
            stored = _load_model(self.source.folder, self.source.head).named_parameters()
            values = {name: parameter.data for name, parameter in stored}
            for name, parameter in self.model.named_parameters():
                if name in values:
                    parameter.data = values[name].to(self.device)
        self.is_released = False

    def _own_tensors(self) -> list[torch.Tensor]:
        return [self.flat] if self.grads is None else [self.flat, self.grads]

    def _frozen(self) -> list[torch.nn.Parameter]:
        """Parameters of a base that states have no part in."""
        named = self.model.named_parameters()
        return [p for name, p in named if name not in self.shapes]

    def store(self, arena: memoryview) -> None:
        """Copy the state from the buffer into a writable arena.

        Raises
        ------
        EngineError
            The arena is smaller than the layout, or read-only.
        """
        if arena.readonly:
            raise EngineError("the arena to store into is read-only; give a writable one")
        self._arena_tensor(arena).copy_(self.flat)

    def read_folder(self, folder: str, arena: memoryview) -> None:
        """Write weights of a folder and a fresh optimizer into a writable arena.

        Raises
        ------
        ModelFolderError
            The folder's tensors are not those of this network.
        """
        if arena.readonly:
            raise EngineError("the arena to read into is read-only; give a writable one")
        tensors = self._folder_tensors(folder)
        target = self._arena_tensor(arena)
        target.zero_()
        self._fill(target, tensors)

    def _folder_tensors(self, folder: str) -> Mapping[str, torch.Tensor]:
        """What version 0 holds: a folder's weights, or adapters, fresh ones over a base."""
        lora = self.source.lora
        if lora is not None:
            if check_adapter_folder(folder, lora):
                return read_adapters(folder, self.shapes)
            check_folder(folder)
            return fresh_adapters(self.shapes)
        named = dict(_load_model(folder, self.source.head).named_parameters())
        expected = self.shapes
        found = {name: tuple(parameter.shape) for name, parameter in named.items()}
        if found != expected:
            wrong = min(set(found.items()) ^ set(expected.items()))
            raise ModelFolderError(
                f"model folder {folder!r} does not fit the network of {self.source.folder!r}: "
                f"tensor {wrong[0]} with shape {wrong[1]} is in only one of them; give models of "
                "one architecture the same config.json"
            )
        return {name: parameter.data for name, parameter in named.items()}

    def _fill(self, buffer: torch.Tensor, tensors: Mapping[str, torch.Tensor]) -> None:
        for slot in self.layout.role(ROLE_WEIGHTS):
            slot_view(buffer, slot).copy_(tensors[slot.name])

    def weights_sha256(self) -> str:
        """SHA-256 over names and bytes of the weights, in layout order."""
        digest = hashlib.sha256()
        for slot in self.layout.role(ROLE_WEIGHTS):
            digest.update(slot.name.encode() + b"\0")
            # A copy: memory that NumPy has seen can never be released.
            part = self.flat[slot.offset : slot.offset + slot.nbytes].cpu().clone()
            digest.update(part.numpy().data)
        return digest.hexdigest()

    def export(self, folder: str) -> None:
        """Write configuration and weights as a Hugging Face folder, or adapters as one of peft."""
        if self.source.lora is not None:
            slots = self.layout.role(ROLE_WEIGHTS)
            adapters = {slot.name: slot_view(self.flat, slot) for slot in slots}
            write_adapters(folder, self.source.folder, self.source.lora, adapters)
            return
        Path(folder).mkdir(parents=True, exist_ok=True)
        state = {name: tensor.detach().cpu() for name, tensor in self.model.state_dict().items()}
        self.model.save_pretrained(folder, state_dict=state)

    def _arena_tensor(self, arena: memoryview) -> torch.Tensor:
        if arena.nbytes < self.layout.nbytes:
            raise EngineError(
                f"an arena of {arena.nbytes} bytes is too small for a state of "
                f"{self.source.folder!r}, which takes {self.layout.nbytes} bytes"
            )
        return torch.frombuffer(arena, dtype=torch.uint8, count=self.layout.nbytes)


def slot_view(buffer: torch.Tensor, slot: TensorSlot) -> torch.Tensor:
    """The tensor of a slot as a view into a byte buffer of the layout."""
    raw = buffer[slot.offset : slot.offset + slot.nbytes]
    return raw.view(getattr(torch, slot.dtype)).view(slot.shape)


def _weights_nbytes(layout: StateLayout) -> int:
    slots = layout.slots
    num_weights = len(layout.role(ROLE_WEIGHTS))
    return slots[num_weights].offset if num_weights < len(slots) else layout.nbytes


def _load_model(folder: str, head: str) -> PreTrainedModel:
    facts = check_folder(folder)
    is_critic = head == HEAD_VALUE
    kind = AutoModelForTokenClassification if is_critic else AutoModelForCausalLM
    try:
        model = kind.from_pretrained(
            folder,
            dtype=torch.float32,
            attn_implementation="sdpa",
            local_files_only=True,
            **({"num_labels": 1} if is_critic else {}),
        )
    except (OSError, ValueError, KeyError, RuntimeError) as error:
        what = "a critic: a model with a value head" if is_critic else "a decoder-only model"
        raise ModelFolderError(
            f"model folder {folder!r} cannot be loaded as {what}: {error}"
        ) from error
    kinds = set(getattr(model.config, "layer_types", None) or ())
    if not kinds <= _ATTENTION_KINDS:
        raise ModelFolderError(
            f"model folder {folder!r} has layers of type {sorted(kinds - _ATTENTION_KINDS)}; the "
            "torch engine runs full and sliding attention only"
        )
    if is_critic and not any(f"{name}.weight" in facts.shapes for name in VALUE_HEADS):
        _zero_head(model)
    return model.eval()


def _zero_head(model: PreTrainedModel) -> None:
    """A new critic estimates 0 everywhere, whatever the random state of the process."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.partition(".")[0] in VALUE_HEADS:
                parameter.zero_()
