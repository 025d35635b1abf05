"""Adapters inside a resident network: made once, then views into the flat buffer of a state.

Shape letters: R rank, I inputs, O outputs.
"""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from transformers import PreTrainedModel

from dataflow.lora import LoraSpec
from plexrl.engines.adapters import (
    ADAPTER_CONFIG,
    ADAPTER_WEIGHTS,
    PEFT_PREFIX,
    adapter_shapes,
    peft_config,
)
from plexrl.errors import ModelFolderError


def add_adapters(
    model: PreTrainedModel, folder: str, lora: LoraSpec
) -> dict[str, torch.nn.Parameter]:
    """Put adapters beside the target layers and freeze everything else.

    Returns
    -------
    dict
        Name → parameter of an adapter, in the order of `adapter_shapes`.

    Raises
    ------
    ModelFolderError
        A target names no linear layer.
    """
    shapes = {name: tuple(p.shape) for name, p in model.named_parameters()}
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    found: dict[str, torch.nn.Parameter] = {}
    for name, shape in adapter_shapes(folder, shapes, lora).items():
        module, part, _ = name.rsplit(".", 2)
        layer = model.get_submodule(module)
        if not isinstance(layer, torch.nn.Linear):
            raise ModelFolderError(
                f"layer {module} of model folder {folder!r} is a {type(layer).__name__}; adapters "
                "go beside linear layers only"
            )
        adapter = torch.nn.Linear(shape[1], shape[0], bias=False)
        layer.add_module(part, adapter)
        if part == "lora_B":
            layer.register_forward_hook(_add_adapter(lora.alpha / lora.rank))
        found[name] = adapter.get_parameter("weight")
    return found


def fresh_adapters(shapes: Mapping[str, tuple[int, ...]]) -> dict[str, torch.Tensor]:
    """Adapters that change nothing yet: A random by the layer's name, B zero.

    A is drawn as `peft` does: uniform within ±1/√inputs.
    """
    return {name: _fresh(name, shape) for name, shape in shapes.items()}


def read_adapters(folder: str, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, torch.Tensor]:
    """Adapters of a folder that `peft` or `write_adapters` wrote.

    Raises
    ------
    ModelFolderError
        Its tensors are not those of the network's adapters.
    """
    path = Path(folder) / ADAPTER_WEIGHTS
    try:
        stored = load_file(path)
    except (OSError, ValueError) as error:
        raise ModelFolderError(f"{path} cannot be read as adapters: {error}") from error
    named = {name.removeprefix(PEFT_PREFIX): tensor for name, tensor in stored.items()}
    if {name: tuple(tensor.shape) for name, tensor in named.items()} != dict(shapes):
        raise ModelFolderError(
            f"{path} has {len(named)} tensors that are not the {len(shapes)} of the adapters of "
            "this network; give adapters of the same base, rank and targets"
        )
    return named


def write_adapters(
    folder: str, base: str, lora: LoraSpec, adapters: Mapping[str, torch.Tensor]
) -> None:
    """Write a folder that `peft.PeftModel.from_pretrained` loads over the base model."""
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    config = json.dumps(peft_config(base, lora), indent=2)
    (target / ADAPTER_CONFIG).write_text(config + "\n", encoding="utf-8")
    tensors = {PEFT_PREFIX + name: t.detach().cpu().contiguous() for name, t in adapters.items()}
    save_file(tensors, target / ADAPTER_WEIGHTS, metadata={"format": "pt"})


def merged(
    name: str, weight_OI: torch.Tensor, adapters: Mapping[str, torch.Tensor], lora: LoraSpec
) -> torch.Tensor:
    """A weight of the base with its adapter added; one without an adapter as it is."""
    module = name.removesuffix(".weight")
    a_RI = adapters.get(f"{module}.lora_A.weight")
    if a_RI is None:
        return weight_OI
    b_OR = adapters[f"{module}.lora_B.weight"]
    return weight_OI + (b_OR @ a_RI) * (lora.alpha / lora.rank)


def _add_adapter(scale: float) -> Any:  # noqa: ANN401 (torch's hook type)
    def hook(
        layer: torch.nn.Module, inputs: tuple[torch.Tensor, ...], output: torch.Tensor
    ) -> torch.Tensor:
        added: torch.Tensor = layer.lora_B(layer.lora_A(inputs[0]))  # type: ignore[operator]
        return output + added * scale

    return hook


def _fresh(name: str, shape: tuple[int, ...]) -> torch.Tensor:
    tensor = torch.zeros(shape)
    if ".lora_A." in name:
        bound = 1 / math.sqrt(shape[1])
        generator = torch.Generator().manual_seed(zlib.crc32(name.encode()))
        tensor.uniform_(-bound, bound, generator=generator)
    return tensor
