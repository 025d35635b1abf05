"""The vLLM engine: rollouts in this process, with weights taken from the arena of a state.

It shares the states of the torch engine, of which it reads the weights only. Its draws are a
function of the sample's key, but its sums depend on which samples are computed together: tokens
and logprobs are those of the torch engine within rounding, not bit for bit.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import torch
from transformers import PretrainedConfig
from transformers.utils import logging as transformers_logging

from dataflow.calls import GenerateOptions
from dataflow.samples import Prompt, Sample
from plexrl.core.layout import StateLayout
from plexrl.engines.memory import bytes_in_use
from plexrl.engines.protocol import Break, DrawKey, Interrupted, ModelSource, Unfinished
from plexrl.engines.text_codec import TextCodec
from plexrl.engines.turns import Rollout, run_turn, run_turn_until
from plexrl.engines.vllm_names import WeightNames
from plexrl.engines.vllm_rollout import VLLMDraw
from plexrl.engines.vllm_seeds import seed_rows
from plexrl.engines.vllm_settings import check_installed, engine_arguments, head_size
from plexrl.engines.vllm_transfer import BACKEND, register_backend, update
from plexrl.errors import EngineError, ModelFolderError

_HERE: list[str] = []
"""Folder of the engine that lives in this process, for as long as the process does."""


class VLLMEngine:
    """One resident network that samples (a `plexrl.engines.protocol.RolloutEngine`).

    One a process: two vLLM engines in one process break each other.

    Parameters
    ----------
    source
        Folder that gives the architecture; its weights are resident from the start.

    Raises
    ------
    InputError
        vLLM is not installed.
    EngineError
        There is one in this process already.
    ModelFolderError
        The folder holds no usable model or tokenizer.
    """

    def __init__(self, source: ModelSource) -> None:
        check_installed(f"model folder {source.folder!r}")
        if _HERE:
            raise EngineError(
                f"this process has the vLLM engine of {_HERE[0]!r} already, and two in one process "
                f"break each other; start {source.folder!r} by EngineProcess"
            )
        _HERE.append(source.folder)
        # Before vLLM takes this function away.
        torch.set_num_threads(1)
        transformers_logging.disable_progress_bar()
        from vllm import LLM
        from vllm.config import WeightTransferConfig

        self.source = source
        self._names = WeightNames(source.folder, source.lora)
        config = self._names.config
        self._is_on_gpu = torch.cuda.is_available()
        if not self._is_on_gpu:
            _check_heads(source.folder, config)
        arguments = engine_arguments(config, is_on_gpu=self._is_on_gpu)
        register_backend()
        transfer = WeightTransferConfig(backend=BACKEND)
        self._llm = LLM(model=source.folder, weight_transfer_config=transfer, **arguments)
        self._llm.init_weight_transfer_engine({"init_info": {}})
        self._llm.collective_rpc(seed_rows)
        codec = TextCodec(source.folder, config.vocab_size)
        limit = int(arguments["max_model_len"])
        self._draw = VLLMDraw(self._llm, source.folder, codec, limit)
        self._rollout = Rollout(codec, limit, self._draw)
        self._loads = itertools.count(1)
        self._draw.tag = "folder"
        self._llm.update_weight_version(self._draw.tag)
        self._is_released = False

    def layout(self) -> StateLayout:
        """Layout of the part of a state that is read: the weights, as the torch engine lays out."""
        return self._names.layout

    def load(self, arena: memoryview) -> None:
        """Arena → device; takes released memory again first.

        Raises
        ------
        EngineError
            The arena is smaller than the weights, or vLLM did not take them all.
        """
        layout = self._names.layout
        if arena.nbytes < layout.nbytes:
            raise EngineError(
                f"an arena of {arena.nbytes} bytes is too small for the weights of "
                f"{self.source.folder!r}, which take {layout.nbytes} bytes"
            )
        self._wake("weights")
        tag = f"load-{next(self._loads)}"
        update(self._llm, self._weights(arena), tag)
        self._draw.tag = tag
        self._wake("kv_cache")
        self._is_released = False

    def generate(
        self, inputs: Sequence[Prompt] | Sequence[Sample], options: GenerateOptions, key: DrawKey
    ) -> tuple[Sample, ...]:
        """Sample completions of prompts, or one more turn of the active samples.

        Raises
        ------
        EngineError
            As `plexrl.engines.turns.run_turn`, or the engine's memory is released.
        """
        self._require_weights()
        return run_turn(self._rollout, inputs, options, key)

    def generate_until(
        self,
        stop: Break,
        inputs: Sequence[Prompt] | Sequence[Sample] | Interrupted,
        options: GenerateOptions,
        key: DrawKey,
    ) -> tuple[Sample, ...] | Interrupted:
        """As `generate`, and stop when asked to; or go on with what was interrupted."""
        self._require_weights()
        return run_turn_until(self._rollout, stop, inputs, options, key)

    def discard(self, name: str) -> None:
        """Give up an interrupted generation."""
        self._draw.discard(name)

    def unfinished(self) -> tuple[Unfinished, ...]:
        """What is being drawn right now; called from another thread, while it is."""
        return self._draw.unfinished()

    def release(self) -> None:
        """Give weights and key-value cache back to the system; the next `load` takes them again.

        Of interrupted generations only tokens are kept, which stay.
        """
        if self._is_released:
            return
        if self._is_on_gpu:
            # Its default would abort what is interrupted.
            self._llm.sleep(level=2, mode="keep")
        else:
            self._llm.reset_prefix_cache()
            self._llm.collective_rpc("plexrl_release")
        self._is_released = True

    def memory_bytes(self) -> int:
        """Bytes in use: of device memory on a GPU, else resident in this process."""
        if self._is_on_gpu:
            free, total = torch.cuda.mem_get_info()
            return total - free
        return bytes_in_use(torch.device("cpu"))

    def _require_weights(self) -> None:
        if self._is_released:
            raise EngineError(
                f"the vLLM engine of {self.source.folder!r} has released its memory; load a state "
                "before generating"
            )

    def _wake(self, part: str) -> None:
        if not self._is_released:
            return
        if self._is_on_gpu:
            self._llm.wake_up(tags=[part])
        elif part == "weights":
            self._llm.collective_rpc("plexrl_reclaim")

    def _weights(self, arena: memoryview) -> Iterator[tuple[str, torch.Tensor]]:
        flat = torch.frombuffer(arena, dtype=torch.uint8, count=self._names.layout.nbytes)
        yield from self._names.weights(flat)


def _check_heads(folder: str, config: PretrainedConfig) -> None:
    from vllm.v1.attention.backends.cpu_attn import CPUAttentionBackend

    size = head_size(config)
    known = CPUAttentionBackend.get_supported_head_sizes()
    if size not in known:
        raise ModelFolderError(
            f"model folder {folder!r} has attention heads of {size}; vLLM on a CPU computes heads "
            f"of {', '.join(map(str, known))}: take rollout_engine='torch' for this model"
        )
