"""Which weights vLLM loads, and where they lie in a state of the torch engine."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from transformers import AutoConfig, AutoModelForCausalLM, PretrainedConfig

from plexrl.core.layout import StateLayout, TensorSlot, pack
from plexrl.engines.folders import check_folder, state_slots
from plexrl.errors import ModelFolderError


class WeightNames:
    """The weights part of a state's layout, found out without reading a weight.

    Parameters
    ----------
    folder
        Model folder that gives the architecture.

    Raises
    ------
    ModelFolderError
        The folder holds no usable decoder-only model.
    """

    def __init__(self, folder: str) -> None:
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
        self.layout: StateLayout = pack(state_slots(shapes, is_trainable=False))
        slots = {id(named[slot.name]): slot for slot in self.layout.slots}
        state = model.state_dict(keep_vars=True)
        # A tied tensor has one slot and several names. vLLM needs them all: it leaves a weight
        # that is not named as it was, and warns only.
        self._slots = [(n, slots[id(tensor)]) for n, tensor in state.items() if id(tensor) in slots]

    def slots(self) -> Iterator[tuple[str, TensorSlot]]:
        """Every name a checkpoint may hold, with the slot its values lie in."""
        yield from self._slots
