"""The vLLM engine: rollouts in this process, with weights taken from the arena of a state.

It shares the states of the torch engine, of which it reads the weights only. Its draws are a
function of the sample's key, but its sums depend on which samples are computed together: tokens
and logprobs are those of the torch engine within rounding, not bit for bit.
"""

from __future__ import annotations

import gc
import itertools
import math
from collections.abc import Iterator, Sequence
from copy import copy
from typing import Any

import torch
from transformers import PretrainedConfig
from transformers.utils import logging as transformers_logging

from dataflow.calls import GenerateOptions
from dataflow.samples import EndReason, Prompt, Sample
from plexrl.core.layout import StateLayout
from plexrl.engines.memory import bytes_in_use
from plexrl.engines.protocol import Break, DrawKey, Interrupted, ModelSource, Unfinished
from plexrl.engines.text_codec import TextCodec
from plexrl.engines.turns import DecodeRow, Drawn, Rollout, run_turn, run_turn_until
from plexrl.engines.vllm_names import WeightNames
from plexrl.engines.vllm_settings import check_installed, engine_arguments, head_size
from plexrl.errors import EngineError, ModelFolderError

_MIN_TEMPERATURE = 0.01
"""vLLM raises lower temperatures to this in silence; only 0 means greedy."""


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
    ModelFolderError
        The folder holds no usable model or tokenizer.
    """

    def __init__(self, source: ModelSource) -> None:
        check_installed(f"model folder {source.folder!r}")
        # Before vLLM takes this function away.
        torch.set_num_threads(1)
        transformers_logging.disable_progress_bar()
        from vllm import LLM

        self.source = source
        self._names = WeightNames(source.folder, source.lora)
        config = self._names.config
        self._is_on_gpu = torch.cuda.is_available()
        if not self._is_on_gpu:
            _check_heads(source.folder, config)
        arguments = engine_arguments(config, is_on_gpu=self._is_on_gpu)
        self._llm = LLM(model=source.folder, **arguments)
        self._codec = TextCodec(source.folder, config.vocab_size)
        limit = int(arguments["max_model_len"])
        self._rollout = Rollout(self._codec, limit, self._draw)
        self._context_limit = limit
        self._loads = itertools.count(1)
        self._tag = "folder"
        self._llm.update_weight_version(self._tag)
        self._is_released = False
        self._drawing: dict[str, DecodeRow] = {}
        """Requests that run."""
        # Collections would walk through all that vLLM and torch imported, in the midst of steps.
        gc.collect()
        gc.freeze()

    def layout(self) -> StateLayout:
        """Layout of the part of a state that is read: the weights, as the torch engine lays out."""
        return self._names.layout

    def load(self, arena: memoryview) -> None:
        """Arena → device; takes released memory again first.

        Raises
        ------
        EngineError
            The arena is smaller than the weights, or vLLM reports other weights than it was given.
        """
        layout = self._names.layout
        if arena.nbytes < layout.nbytes:
            raise EngineError(
                f"an arena of {arena.nbytes} bytes is too small for the weights of "
                f"{self.source.folder!r}, which take {layout.nbytes} bytes"
            )
        self._wake("weights")
        self._tag = f"load-{next(self._loads)}"
        self._llm.collective_rpc(
            "reload_weights", kwargs={"weights_iterator": self._weights(arena)}
        )
        self._wake("kv_cache")
        self._is_released = False
        # Cached keys and values are those of the weights before.
        if not self._llm.reset_prefix_cache():
            raise EngineError(
                f"vLLM kept its prefix cache over new weights of {self.source.folder!r}: a request "
                "still runs; restart the engine"
            )
        self._llm.update_weight_version(self._tag)
        found = self._llm.get_weight_version()
        if found != self._tag:
            raise EngineError(
                f"vLLM reports weights {found!r} after {self._tag!r} of {self.source.folder!r} was "
                "loaded; restart the engine"
            )

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
        """As `generate`, and stop when asked to; rows that had not ended are drawn again later."""
        self._require_weights()
        return run_turn_until(self._rollout, stop, inputs, options, key)

    def discard(self, name: str) -> None:
        """Do nothing: of what was interrupted, nothing is kept here."""

    def unfinished(self) -> tuple[Unfinished, ...]:
        """What is being drawn right now; called from another thread, while it is."""
        known = self._llm.llm_engine.output_processor.request_states.get
        states = ((row.sample, known(name)) for name, row in tuple(self._drawing.items()))
        return tuple(
            Unfinished(sample, state.detokenizer.num_output_tokens())
            for sample, state in states
            if state is not None
        )

    def release(self) -> None:
        """Give weights and key-value cache back to the system; the next `load` takes them again."""
        if self._is_released:
            return
        if self._is_on_gpu:
            self._llm.sleep(level=2)
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

    def _draw(
        self, rows: Sequence[DecodeRow], options: GenerateOptions, stop: Break
    ) -> list[Drawn | None]:
        """Draw one turn of each row (`plexrl.engines.turns.Draw`)."""
        turns = [_Turn() for _ in rows]
        engine = self._llm.llm_engine
        ids: list[str] = []
        try:
            ids.extend(
                engine.add_request(request.request_id, request, request.params)
                for request in self._requests(rows, options)
            )
            self._drawing = dict(zip(ids, rows, strict=True))
            while engine.has_unfinished_requests():
                for output in engine.step():
                    turn = turns[int(output.request_id)]
                    if self._take(turn, output.outputs[0], options):
                        engine.abort_request([output.request_id])
                is_asked = stop.is_asked()
                if cancelled := stop.cancelled():
                    self._cancel(ids, turns, [row.sample in cancelled for row in rows], options)
                if is_asked:
                    engine.abort_request(ids, internal=True)
                    break
        except BaseException:
            engine.abort_request(ids, internal=True)
            raise
        finally:
            self._drawing = {}
        if not all(math.isfinite(sum(turn.logprobs)) for turn in turns if turn.end is not None):
            # Whoever comes next must not suffer from the broken weights of this one.
            self._llm.reset_prefix_cache()
            self._llm.collective_rpc("plexrl_clear_cache")
        return [turn.drawn() for turn in turns]

    def _requests(self, rows: Sequence[DecodeRow], options: GenerateOptions) -> Iterator[Any]:
        """One request a row; rows of one context are prepared once, as vLLM does for ``n``."""
        engine = self._llm.llm_engine
        prepared: dict[tuple[int, ...], Any] = {}
        for index, row in enumerate(rows):
            name = str(index)
            if row.context not in prepared:
                prompt = {"prompt_token_ids": list(row.context)}
                prepared[row.context] = engine.input_processor.process_inputs(
                    name,
                    prompt,
                    self._params(len(row.context), options),
                    supported_tasks=engine.get_supported_tasks(),
                )
            request = copy(prepared[row.context])
            request.request_id = name
            request.sampling_params = copy(request.sampling_params)
            request.sampling_params.seed = row.draw_key >> 65
            yield request

    def _params(self, length: int, options: GenerateOptions) -> Any:  # noqa: ANN401 (vLLM's)
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        if 0 < options.temperature < _MIN_TEMPERATURE:
            raise EngineError(
                f"temperature {options.temperature} is below {_MIN_TEMPERATURE}, the lowest vLLM "
                "samples at; take 0 for greedy sampling, or the torch engine"
            )
        kind = RequestOutputKind.DELTA if options.stop else RequestOutputKind.FINAL_ONLY
        return SamplingParams(
            temperature=options.temperature,
            top_p=options.top_p,
            top_k=options.top_k,
            max_tokens=min(options.max_new_tokens, self._context_limit - length),
            # Of the one it is copied from; each row gets its own.
            seed=0,
            stop_token_ids=sorted(self._codec.eos_ids),
            ignore_eos=True,
            logprobs=0,
            flat_logprobs=True,
            detokenize=False,
            output_kind=kind,
        )

    def _take(self, turn: _Turn, part: Any, options: GenerateOptions) -> bool:  # noqa: ANN401
        """Add what a step gave to a turn; whether a stop text ends it before vLLM would."""
        if turn.end is not None:
            return False
        tokens = list(part.token_ids)
        for token, logprob in zip(tokens, part.logprobs.logprobs, strict=True):
            turn.token_ids.append(token)
            turn.logprobs.append(logprob)
            if options.stop and self._has_stop(turn.token_ids, options.stop):
                turn.end = EndReason.TOOL_CALL
                return part.finish_reason is None
        if part.finish_reason is not None:
            turn.end = _END[part.finish_reason]
            self._check_version(part)
        return False

    def _cancel(
        self,
        ids: Sequence[str],
        turns: Sequence[_Turn],
        is_cancelled: Sequence[bool],
        options: GenerateOptions,
    ) -> None:
        """End cancelled turns that have a token, with what was drawn."""
        from vllm.v1.engine import FinishReason

        engine = self._llm.llm_engine
        for name, turn in itertools.compress(zip(ids, turns, strict=True), is_cancelled):
            state = engine.output_processor.request_states.get(name)
            if state is not None and state.detokenizer.num_output_tokens():
                # As vLLM itself answers who waits for a request that is aborted.
                output = state.make_request_output([], None, FinishReason.ABORT, None)
                self._take(turn, output.outputs[0], options)
                engine.abort_request([name], internal=True)

    def _has_stop(self, token_ids: list[int], stop: tuple[str, ...]) -> bool:
        if self._codec.is_eos[token_ids[-1]] or not self._codec.may_end(stop)[token_ids[-1]]:
            return False
        text = self._codec.decode(token_ids)
        return any(wanted in text for wanted in stop)

    def _check_version(self, part: Any) -> None:  # noqa: ANN401
        found = {span.version for span in part.weight_versions or ()}
        if found != {self._tag}:
            raise EngineError(
                f"vLLM sampled with weights {sorted(found)} where {self._tag!r} of "
                f"{self.source.folder!r} is loaded; restart the engine"
            )


def _check_heads(folder: str, config: PretrainedConfig) -> None:
    from vllm.v1.attention.backends.cpu_attn import CPUAttentionBackend

    size = head_size(config)
    known = CPUAttentionBackend.get_supported_head_sizes()
    if size not in known:
        raise ModelFolderError(
            f"model folder {folder!r} has attention heads of {size}; vLLM on a CPU computes heads "
            f"of {', '.join(map(str, known))}: take rollout_engine='torch' for this model"
        )


_END = {
    "stop": EndReason.STOP,
    "length": EndReason.LENGTH,
    "abort": EndReason.CANCELLED,
}
"""vLLM's finish reason → ours."""


class _Turn:
    """A turn while it is drawn."""

    def __init__(self) -> None:
        self.token_ids: list[int] = []
        self.logprobs: list[float] = []
        self.end: EndReason | None = None

    def drawn(self) -> Drawn | None:
        if self.end is None:
            return None
        return Drawn(tuple(self.token_ids), tuple(self.logprobs), self.end)
