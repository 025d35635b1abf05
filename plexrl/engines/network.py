"""A resident network whose weights and optimizer moments are views into one flat buffer."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForTokenClassification,
    PreTrainedModel,
)

from plexrl.core.layout import ROLE_WEIGHTS, StateLayout, TensorSlot, pack
from plexrl.engines.adapters import check_adapter_folder
from plexrl.engines.folders import HEAD_VALUE, VALUE_HEADS, check_folder, state_slots
from plexrl.engines.lora_network import (
    add_adapters,
    fresh_adapters,
    read_adapters,
    write_adapters,
)
from plexrl.engines.optimized import Optimized
from plexrl.engines.protocol import ModelSource
from plexrl.engines.ranks import ALONE
from plexrl.errors import EngineError, ModelFolderError

_MAX_REASON = 600
"""Characters of what the library says: it may list every architecture it knows."""
_MAX_ROUNDING = 1e-3
"""Share of a hidden state by which rounding may change it."""
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
        self.ranks = ALONE
        self.model, named, self.layout = build_model(source)
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
        if source.lora is not None:
            fill_slots(self.flat, self.layout, fresh_adapters(self.shapes))
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
        source = arena_tensor(arena, self.layout, self.source)
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
            stored = load_model(self.source.folder, self.source.head).named_parameters()
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
        require_writable(arena, "store")
        arena_tensor(arena, self.layout, self.source).copy_(self.flat)

    def read_folder(self, folder: str, arena: memoryview) -> None:
        """Write weights of a folder and a fresh optimizer into a writable arena.

        Raises
        ------
        ModelFolderError
            The folder's tensors are not those of this network.
        """
        require_writable(arena, "read")
        tensors = folder_tensors(folder, self.source, self.shapes)
        target = arena_tensor(arena, self.layout, self.source)
        fill_slots(target, self.layout, tensors)

    @contextmanager
    def whole(self) -> Iterator[None]:
        """All weights are at hand; here they always are."""
        yield

    def optimized(self) -> list[Optimized]:
        """All weights as one flat tensor, with both moments.

        Raises
        ------
        EngineError
            The network is frozen.
        """
        if self.grads is None:
            raise frozen_error(self.source)
        step = slot_view(self.flat, self.layout.slots[-1])
        return [Optimized(self.weights, self.region(1), self.region(2), step)]

    def zero_gradients(self) -> None:
        """Forget the gradients."""
        for gradient in self.gradients():
            gradient.zero_()

    def gradients(self) -> list[torch.Tensor]:
        """Gradients of `optimized`."""
        return [] if self.grads is None else [self.grads]

    def snapshot(self) -> list[torch.Tensor]:
        """Copy of the whole state."""
        return [self.flat.clone()]

    def restore(self, snapshot: Sequence[torch.Tensor]) -> None:
        """Go back to a copy."""
        self.flat.copy_(snapshot[0])

    def weights_sha256(self) -> str:
        """SHA-256 over names and bytes of the weights, in layout order."""
        slots = self.layout.role(ROLE_WEIGHTS)
        return tensors_sha256((slot.name, slot_view(self.flat, slot)) for slot in slots)

    def export(self, folder: str) -> None:
        """Write configuration and weights as a Hugging Face folder, or adapters as one of peft."""
        slots = self.layout.role(ROLE_WEIGHTS)
        tensors = {slot.name: slot_view(self.flat, slot) for slot in slots}
        if self.source.lora is not None:
            export_tensors(folder, self.source, tensors)
            return
        _save_model(self.model, folder)


def slot_view(buffer: torch.Tensor, slot: TensorSlot) -> torch.Tensor:
    """The tensor of a slot as a view into a byte buffer of the layout."""
    raw = buffer[slot.offset : slot.offset + slot.nbytes]
    return raw.view(getattr(torch, slot.dtype)).view(slot.shape)


def arena_tensor(arena: memoryview, layout: StateLayout, source: ModelSource) -> torch.Tensor:
    """The bytes of an arena as a tensor that shares them.

    Raises
    ------
    EngineError
        The arena is smaller than the layout.
    """
    if arena.nbytes < layout.nbytes:
        raise EngineError(
            f"an arena of {arena.nbytes} bytes is too small for a state of {source.folder!r}, "
            f"which takes {layout.nbytes} bytes"
        )
    return torch.frombuffer(arena, dtype=torch.uint8, count=layout.nbytes)


def require_writable(arena: memoryview, what: str) -> None:
    """Raise EngineError if an arena to store or read into cannot be written."""
    if arena.readonly:
        raise EngineError(f"the arena to {what} into is read-only; give a writable one")


def fill_slots(
    buffer: torch.Tensor, layout: StateLayout, tensors: Mapping[str, torch.Tensor]
) -> None:
    """Write weights and a fresh optimizer into a byte buffer of the layout."""
    buffer.zero_()
    for slot in layout.role(ROLE_WEIGHTS):
        slot_view(buffer, slot).copy_(tensors[slot.name])


def folder_tensors(
    folder: str, source: ModelSource, shapes: Mapping[str, tuple[int, ...]]
) -> Mapping[str, torch.Tensor]:
    """What version 0 holds: a folder's weights, or adapters, fresh ones over a base.

    Raises
    ------
    ModelFolderError
        The folder's tensors do not have these shapes.
    """
    if source.lora is not None:
        if check_adapter_folder(folder, source.lora):
            return read_adapters(folder, shapes)
        check_folder(folder)
        return fresh_adapters(shapes)
    named = dict(load_model(folder, source.head).named_parameters())
    found = {name: tuple(parameter.shape) for name, parameter in named.items()}
    if found != shapes:
        wrong = min(set(found.items()) ^ set(shapes.items()))
        raise ModelFolderError(
            f"model folder {folder!r} does not fit the network of {source.folder!r}: "
            f"tensor {wrong[0]} with shape {wrong[1]} is in only one of them; give models of "
            "one architecture the same config.json"
        )
    broken = [name for name, parameter in named.items() if not parameter.data.isfinite().all()]
    if broken:
        raise ModelFolderError(
            f"model folder {folder!r} has values that are not finite in {len(broken)} tensors, "
            f"such as {broken[0]}; take a version of the model from before it broke"
        )
    return {name: parameter.data for name, parameter in named.items()}


def tensors_sha256(tensors: Iterable[tuple[str, torch.Tensor]]) -> str:
    """SHA-256 over names and bytes of tensors, in the order given."""
    digest = hashlib.sha256()
    for name, tensor in tensors:
        digest.update(name.encode() + b"\0")
        # A copy: memory that NumPy has seen can never be released.
        digest.update(tensor.detach().cpu().clone().reshape(-1).numpy().data)
    return digest.hexdigest()


def export_tensors(folder: str, source: ModelSource, tensors: Mapping[str, torch.Tensor]) -> None:
    """Write weights that no resident model holds whole, or adapters as a folder of peft."""
    if source.lora is not None:
        write_adapters(folder, source.folder, source.lora, tensors)
        return
    model = load_model(source.folder, source.head)
    for name, parameter in model.named_parameters():
        parameter.data.copy_(tensors[name])
    _save_model(model, folder)


def frozen_error(source: ModelSource) -> EngineError:
    """A frozen network was to be trained."""
    return EngineError(
        f"model {source.folder!r} was loaded frozen and cannot be trained; declare it trainable"
    )


def build_model(
    source: ModelSource,
) -> tuple[PreTrainedModel, dict[str, torch.nn.Parameter], StateLayout]:
    """The network of a folder, the parameters its states consist of by name, and their layout.

    Raises
    ------
    ModelFolderError
        The folder holds no usable model.
    """
    model = load_model(source.folder, source.head)
    try:
        _check_causal(model, source.folder)
    except (RuntimeError, TypeError, ValueError) as error:
        # What a configuration that contradicts itself makes torch raise is of many kinds.
        raise ModelFolderError(
            f"model folder {source.folder!r} holds a {type(model).__name__} that cannot compute: "
            f"{str(error)[:_MAX_REASON]}; check its config.json"
        ) from error
    named = (
        dict(model.named_parameters())
        if source.lora is None
        else add_adapters(model, source.folder, source.lora)
    )
    shapes = {name: tuple(parameter.shape) for name, parameter in named.items()}
    return model, named, pack(state_slots(shapes, source.is_trainable))


def _save_model(model: PreTrainedModel, folder: str) -> None:
    Path(folder).mkdir(parents=True, exist_ok=True)
    state = {name: tensor.detach().cpu() for name, tensor in model.state_dict().items()}
    model.save_pretrained(folder, state_dict=state)


def _weights_nbytes(layout: StateLayout) -> int:
    slots = layout.slots
    num_weights = len(layout.role(ROLE_WEIGHTS))
    return slots[num_weights].offset if num_weights < len(slots) else layout.nbytes


def load_model(folder: str, head: str) -> PreTrainedModel:
    """The network of a folder in float32, in evaluation mode.

    Raises
    ------
    ModelFolderError
        The folder holds no usable model.
    """
    facts = check_folder(folder)
    is_critic = head == HEAD_VALUE
    kind = AutoModelForTokenClassification if is_critic else AutoModelForCausalLM
    try:
        model, report = kind.from_pretrained(
            folder,
            dtype=torch.float32,
            attn_implementation=_attention(kind, folder),
            local_files_only=True,
            output_loading_info=True,
            ignore_mismatched_sizes=True,
            **({"num_labels": 1} if is_critic else {}),
        )
    except Exception as error:
        # What a folder from anywhere makes the library raise is of many kinds.
        what = "a critic: a model with a value head" if is_critic else "a decoder-only model"
        raise ModelFolderError(
            f"model folder {folder!r} cannot be loaded as {what}: {str(error)[:_MAX_REASON]}"
        ) from error
    kinds = set(getattr(model.config, "layer_types", None) or ())
    if not kinds <= _ATTENTION_KINDS:
        raise ModelFolderError(
            f"model folder {folder!r} has layers of type {sorted(kinds - _ATTENTION_KINDS)}; the "
            "torch engine runs full and sliding attention only"
        )
    has_fresh_head = is_critic and not any(f"{n}.weight" in facts.shapes for n in VALUE_HEADS)
    missing = [n for n in report["missing_keys"] if not (has_fresh_head and _is_head(n))]
    _check_complete(model, folder, missing, report["mismatched_keys"])
    if has_fresh_head:
        _zero_head(model)
    return model.eval()


def _attention(kind: type[AutoModelForCausalLM], folder: str) -> str:
    """How a network computes its attention: torch's fused one, where it can."""
    config = AutoConfig.from_pretrained(folder, local_files_only=True)
    model = kind._model_mapping[type(config)]  # noqa: SLF001 (the library tells it nowhere else)
    if model._is_stateful:  # noqa: SLF001
        raise ValueError(
            f"a {model.__name__} carries a state from token to token; the torch engine runs "
            "attention only"
        )
    return "sdpa" if model._supports_sdpa else "eager"  # noqa: SLF001


def _check_complete(
    model: PreTrainedModel,
    folder: str,
    missing: Sequence[str],
    misshapen: Iterable[tuple[str, Sequence[int], Sequence[int]]],
) -> None:
    """Raise if the library filled tensors with random numbers, other ones in each process."""
    for name, stored, wanted in sorted(misshapen):
        raise ModelFolderError(
            f"model folder {folder!r} stores {name} with shape {tuple(stored)}, where its "
            f"config.json says {tuple(wanted)}; save configuration and weights together with "
            "`save_pretrained`"
        )
    if missing:
        raise ModelFolderError(
            f"model folder {folder!r} lacks {len(missing)} tensors of a {type(model).__name__}, "
            f"such as {min(missing)}; save the whole model with `save_pretrained`"
        )


def _is_head(tensor: str) -> bool:
    return tensor.partition(".")[0] in VALUE_HEADS


@torch.no_grad()
def _check_causal(model: PreTrainedModel, folder: str) -> None:
    """Raise unless what a model makes of a token is independent of the tokens after it."""
    pairs = torch.tensor([[0, 0], [0, 1]], device=model.device)
    hidden_BTH = model(input_ids=pairs, use_cache=False, output_hidden_states=True).hidden_states[
        -1
    ]
    first, second = hidden_BTH[:, 0]
    if float((first - second).abs().max()) > _MAX_ROUNDING * float(first.abs().max()):
        raise ModelFolderError(
            f"model folder {folder!r} holds a {type(model).__name__} that looks ahead, as encoders "
            "do: it can neither generate nor be scored token by token; take a decoder-only model"
        )


def _zero_head(model: PreTrainedModel) -> None:
    """A new critic estimates 0 everywhere, whatever the random state of the process."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if _is_head(name):
                parameter.zero_()
