"""Which weights vLLM loads, and where they lie in a state of the torch engine."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from transformers import AutoConfig, AutoModelForCausalLM, PretrainedConfig

from dataflow.lora import LoraSpec
from plexrl.core.layout import StateLayout, pack
from plexrl.engines.adapters import adapter_shapes
from plexrl.engines.folders import check_folder, state_slots
from plexrl.engines.lora_network import merged
from plexrl.engines.network import slot_view
from plexrl.errors import ModelFolderError


class WeightNames:
    """The weights part of a state's layout, found out without reading a weight.

    Parameters
    ----------
    folder
        Model folder that gives the architecture.
    lora
        Adapters that the states consist of, over the folder's own weights.

    Raises
    ------
    ModelFolderError
        The folder holds no usable decoder-only model.
    """

    def __init__(self, folder: str, lora: LoraSpec | None = None) -> None:
        check_folder(folder)
        try:
            self.config: PretrainedConfig = AutoConfig.from_pretrained(
                folder, local_files_only=True
            )
            with torch.device("meta"):
                model = AutoModelForCausalLM.from_config(self.config)
        except (OSError, ValueError, KeyError) as error:
            raise ModelFolderError(
                f"model folder {folder!r} cannot be read as a decoder-only model: {error}"
            ) from error
        named = dict(model.named_parameters())
        shapes = {name: tuple(parameter.shape) for name, parameter in named.items()}
        read = shapes if lora is None else adapter_shapes(folder, shapes, lora)
        self.layout: StateLayout = pack(state_slots(read, is_trainable=False))
        self._lora = lora
        self._base = _stored(folder) if lora is not None else {}
        own_names = {id(parameter): name for name, parameter in named.items()}
        state = model.state_dict(keep_vars=True)
        # A tied tensor has one slot and several names. vLLM needs them all: it leaves a weight
        # that is not named as it was, and warns only.
        self._names = [(n, own_names[id(t)]) for n, t in state.items() if id(t) in own_names]

    def weights(self, flat: torch.Tensor) -> Iterator[tuple[str, torch.Tensor]]:
        """Every name a checkpoint may hold, with its values under a state.

        Parameters
        ----------
        flat
            Bytes of the state; adapters are added to the folder's weights.
        """
        read = {slot.name: slot_view(flat, slot) for slot in self.layout.slots}
        for name, own_name in self._names:
            if self._lora is None:
                yield name, read[own_name]
            else:
                yield name, merged(own_name, self._base[own_name], read, self._lora)


def _stored(folder: str) -> dict[str, torch.Tensor]:
    """Weights of a folder, by the names its network gives them, in the dtype of states."""
    try:
        model = AutoModelForCausalLM.from_pretrained(
            folder, dtype=torch.float32, local_files_only=True
        )
    except (OSError, ValueError, KeyError, RuntimeError) as error:
        raise ModelFolderError(f"model folder {folder!r} cannot be loaded: {error}") from error
    return {name: parameter.data for name, parameter in model.named_parameters()}
