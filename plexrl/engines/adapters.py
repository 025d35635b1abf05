"""Low-rank adapters (LoRA, arXiv 2106.09685): which tensors they have, found without torch.

A model trained by adapters keeps its network frozen; its states are the adapters alone, so many
jobs over one base share one resident network, and a swap moves little. Names and shapes are those
of `peft`, whose numerics these adapters have; written here, since their tensors must be views into
the flat buffer of a state, which `peft` does not offer.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

from dataflow.lora import LoraSpec
from plexrl.errors import ModelFolderError

PEFT_PREFIX = "base_model.model."
"""What `peft` writes before the names of tensors."""
ADAPTER_CONFIG = "adapter_config.json"
ADAPTER_WEIGHTS = "adapter_model.safetensors"
_OTHER_KINDS = (
    "alpha_pattern",
    "bias",
    "fan_in_fan_out",
    "modules_to_save",
    "rank_pattern",
    "use_dora",
    "use_rslora",
)
"""Settings of `peft` that make adapters add something else than ``alpha / rank · B A x``."""
_NOTHING: tuple[object, ...] = (None, False, "none", {}, [])


def adapter_shapes(
    folder: str, shapes: Mapping[str, tuple[int, ...]], lora: LoraSpec
) -> dict[str, tuple[int, ...]]:
    """Tensors of the adapters of a network.

    Parameters
    ----------
    folder
        Names the network in errors.
    shapes
        Tensors of the network, in its order.
    lora
        Rank and targets.

    Returns
    -------
    dict
        Name → shape, in order: ``….lora_A.weight`` (rank × inputs), ``….lora_B.weight`` (outputs ×
        rank).

    Raises
    ------
    ModelFolderError
        A target names no linear layer of the network.
    """
    found: dict[str, tuple[int, ...]] = {}
    missing = set(lora.targets)
    for module, target, (num_out, num_in) in _linear_layers(shapes):
        if target in lora.targets:
            missing.discard(target)
            found[f"{module}.lora_A.weight"] = (lora.rank, num_in)
            found[f"{module}.lora_B.weight"] = (num_out, lora.rank)
    if missing:
        known = sorted({target for _, target, _ in _linear_layers(shapes)})
        raise ModelFolderError(
            f"model folder {folder!r} has no layer {', '.join(sorted(missing))} for adapters; its "
            f"layers are {', '.join(known)}: name some of them as lora targets"
        )
    return found


def check_adapter_folder(folder: str | Path, lora: LoraSpec) -> bool:
    """Whether a folder holds adapters as `peft` writes them; else it holds a whole model.

    Raises
    ------
    ModelFolderError
        It holds adapters of another kind.
    """
    path = Path(folder) / ADAPTER_CONFIG
    if not path.is_file():
        return False
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
        found = (config["r"], config["lora_alpha"], tuple(sorted(config["target_modules"])))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ModelFolderError(f"{path} cannot be read as adapters of peft: {error}") from error
    wanted = (lora.rank, lora.alpha, tuple(sorted(lora.targets)))
    if found != wanted:
        raise ModelFolderError(
            f"{path} has rank, alpha and targets {found}, the job asks for {wanted}; make them "
            "equal"
        )
    others = [name for name in _OTHER_KINDS if config.get(name) not in _NOTHING]
    if others:
        raise ModelFolderError(
            f"{path} has {', '.join(f'{name}={config[name]!r}' for name in others)}: adapters of "
            "another kind, which would compute something else here; give plain LoRA adapters"
        )
    return True


def peft_config(folder: str, lora: LoraSpec) -> dict[str, object]:
    """Content of the `adapter_config.json` that `peft` loads.

    Parameters
    ----------
    folder
        Of the base model.
    lora
        What the adapters are.
    """
    return {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": folder,
        "r": lora.rank,
        "lora_alpha": lora.alpha,
        "lora_dropout": 0.0,
        "target_modules": sorted(lora.targets),
        "bias": "none",
        "fan_in_fan_out": False,
        "inference_mode": True,
    }


def _linear_layers(
    shapes: Mapping[str, tuple[int, ...]],
) -> Iterator[tuple[str, str, tuple[int, int]]]:
    """``(module, last part of its name, shape)`` of what has a matrix for a weight."""
    for name, shape in shapes.items():
        module, _, kind = name.rpartition(".")
        if kind == "weight" and len(shape) == 2 and "embed" not in module:
            yield module, module.rpartition(".")[2], (shape[0], shape[1])
