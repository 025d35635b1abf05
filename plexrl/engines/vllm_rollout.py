"""How vLLM draws a turn, and how it stops between two tokens and goes on.

An interrupted row stays with vLLM as one that was preempted: its tokens and its random generator
are kept, its keys and values are computed anew when it goes on. It is only taken out of the queue
meanwhile, so that vLLM serves others.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from typing import Any

from dataflow.calls import GenerateOptions
from dataflow.samples import EndReason, SampleId
from plexrl.engines.protocol import Break, Unfinished
from plexrl.engines.text_codec import TextCodec
from plexrl.engines.turns import DecodeRow, Drawn
from plexrl.errors import EngineError

_MIN_TEMPERATURE = 0.01
"""vLLM raises lower temperatures to this in silence; only 0 means greedy."""

_END = {
    "stop": EndReason.STOP,
    "length": EndReason.LENGTH,
    "abort": EndReason.CANCELLED,
}
"""vLLM's finish reason → ours."""


@dataclass(slots=True, eq=False)
class _Turn:
    """A turn while it is drawn."""

    name: str
    """Of its request, as outputs carry it."""
    sample: SampleId
    id: str = ""
    """Of its request, inside vLLM."""
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    end: EndReason | None = None
    tags: list[str] = field(default_factory=list)
    """Of the loads of its weights during which it was drawn."""
    num_before: int = 0
    """Tokens drawn before it went on."""

    def drawn(self) -> Drawn | None:
        if self.end is None:
            return None
        return Drawn(tuple(self.token_ids), tuple(self.logprobs), self.end)


class VLLMDraw:
    """A `plexrl.engines.turns.Draw` by a resident vLLM engine.

    Parameters
    ----------
    llm
        ``vllm.LLM`` whose core runs in this process.
    folder
        Model folder, for messages.
    codec
        Its tokenizer.
    context_limit
        Most tokens of prompt and completion together.

    Attributes
    ----------
    tag : str
        Of the weights that are loaded.
    """

    def __init__(
        self,
        llm: Any,  # noqa: ANN401 (vLLM is untyped here)
        folder: str,
        codec: TextCodec,
        context_limit: int,
    ) -> None:
        self.tag = ""
        self._llm = llm
        self._engine = llm.llm_engine
        self._core = self._engine.engine_core.engine_core
        self._folder = folder
        self._codec = codec
        self._context_limit = context_limit
        self._names = itertools.count()
        self._drawing: Sequence[_Turn] = ()
        self._kept: dict[str, dict[DecodeRow, _Turn]] = {}
        """Name of the break → its unfinished rows."""

    def __call__(
        self, rows: Sequence[DecodeRow], options: GenerateOptions, stop: Break
    ) -> list[Drawn | None]:
        """Draw one turn of each row; results in the order of the rows."""
        kept = self._kept.pop(stop.resumes, {})
        turns = [kept.get(row) or self._new_turn(row) for row in rows]
        wanted = {turn.id for turn in turns}
        self._abort(turn for turn in kept.values() if turn.id not in wanted)
        try:
            self._go_on([turn for turn in turns if turn.id])
            self._begin([(r, t) for r, t in zip(rows, turns, strict=True) if not t.id], options)
            self._drawing = turns
            is_over = self._run(turns, options, stop)
        except BaseException:
            self._abort(turns)
            raise
        finally:
            self._drawing = ()
        if not all(math.isfinite(sum(turn.logprobs)) for turn in turns if turn.end is not None):
            # Whoever comes next must not suffer from the broken weights of this one.
            self._abort(turns)
            self._llm.reset_prefix_cache()
            self._llm.collective_rpc("plexrl_clear_cache")
        elif not is_over:
            self._keep(rows, turns, stop.name)
        return [turn.drawn() for turn in turns]

    def discard(self, name: str) -> None:
        """Give up what is kept of an interrupted turn."""
        self._abort(self._kept.pop(name, {}).values())

    def unfinished(self) -> tuple[Unfinished, ...]:
        """What is being drawn right now; called from another thread, while it is."""
        states = [(turn.sample, self._state(turn)) for turn in self._drawing]
        return tuple(
            Unfinished(sample, state.detokenizer.num_output_tokens())
            for sample, state in states
            if state is not None
        )

    def _new_turn(self, row: DecodeRow) -> _Turn:
        return _Turn(str(next(self._names)), row.sample)

    def _state(self, turn: _Turn) -> Any:  # noqa: ANN401 (vLLM's)
        """What vLLM knows of a request; None once it has ended."""
        return self._engine.output_processor.request_states.get(turn.id)

    def _begin(self, new: Sequence[tuple[DecodeRow, _Turn]], options: GenerateOptions) -> None:
        """Hand rows to vLLM; those of one context are prepared once, as it does for ``n``."""
        prepared: dict[tuple[int, ...], Any] = {}
        for row, turn in new:
            if row.context not in prepared:
                prepared[row.context] = self._engine.input_processor.process_inputs(
                    turn.name,
                    {"prompt_token_ids": list(row.context)},
                    self._params(len(row.context), options),
                    supported_tasks=self._engine.get_supported_tasks(),
                )
            request = copy(prepared[row.context])
            request.request_id = turn.name
            request.sampling_params = copy(request.sampling_params)
            request.sampling_params.seed = row.draw_key >> 65
            turn.tags = [self.tag]
            turn.id = self._engine.add_request(turn.name, request, request.params)

    def _go_on(self, turns: Sequence[_Turn]) -> None:
        """Put interrupted rows back into vLLM's queue."""
        scheduler = self._core.scheduler
        for turn in turns:
            request = scheduler.requests[turn.id]
            turn.num_before = request.num_output_tokens
            turn.tags.append(self.tag)
            scheduler.waiting.add_request(request)

    def _run(self, turns: Sequence[_Turn], options: GenerateOptions, stop: Break) -> bool:
        """Step until every turn has ended, or until told to stop; whether all have ended."""
        by_name = {turn.name: turn for turn in turns}
        while self._core.scheduler.has_unfinished_requests():
            self._step(by_name, options)
            is_asked = stop.is_asked()
            if cancelled := stop.cancelled():
                self._cancel([turn for turn in turns if turn.sample in cancelled], options)
            # Each part draws at least one token, however often it is told to stop.
            if is_asked and any(self._has_drawn(turn) for turn in turns):
                self._settle(by_name, options)
                break
        return all(turn.end is not None for turn in turns)

    def _step(self, turns: Mapping[str, _Turn], options: GenerateOptions) -> None:
        for output in self._engine.step():
            turn = turns[output.request_id]
            if self._take(turn, output.outputs[0], options):
                self._abort([turn])

    def _cancel(self, turns: Iterable[_Turn], options: GenerateOptions) -> None:
        """End turns that have a token, with what was drawn."""
        from vllm.v1.engine import FinishReason

        for turn in turns:
            state = self._state(turn)
            if state is not None and state.detokenizer.num_output_tokens():
                # As vLLM itself answers who waits for a request that is aborted.
                output = state.make_request_output([], None, FinishReason.ABORT, None)
                self._take(turn, output.outputs[0], options)
                self._abort([turn])

    def _settle(self, turns: Mapping[str, _Turn], options: GenerateOptions) -> None:
        """Begin no token more, and take those that are being drawn: nothing drawn is lost."""
        self._core.pause_scheduler("keep", clear_cache=False)
        try:
            while any(request.num_in_flight_tokens for request in self._core.scheduler.running):
                self._step(turns, options)
        finally:
            self._core.resume_scheduler()

    def _has_drawn(self, turn: _Turn) -> bool:
        """Whether a turn got a token since it began or went on."""
        request = self._core.scheduler.requests.get(turn.id)
        return request is None or request.num_output_tokens > turn.num_before

    def _keep(self, rows: Sequence[DecodeRow], turns: Sequence[_Turn], name: str) -> None:
        """Take what has not ended out of vLLM's queue."""
        left = {row: turn for row, turn in zip(rows, turns, strict=True) if turn.end is None}
        # Preempts what runs, as vLLM itself does where its cache is full.
        self._engine.reset_prefix_cache(reset_running_requests=True)
        scheduler = self._core.scheduler
        scheduler.waiting.remove_requests([scheduler.requests[turn.id] for turn in left.values()])
        self._kept[name] = left

    def _abort(self, turns: Iterable[_Turn]) -> None:
        self._engine.abort_request([turn.id for turn in turns if turn.id], internal=True)

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
            self._check_version(turn, part)
        return False

    def _has_stop(self, token_ids: list[int], stop: tuple[str, ...]) -> bool:
        if self._codec.is_eos[token_ids[-1]] or not self._codec.may_end(stop)[token_ids[-1]]:
            return False
        text = self._codec.decode(token_ids)
        return any(wanted in text for wanted in stop)

    def _check_version(self, turn: _Turn, part: Any) -> None:  # noqa: ANN401
        found = [span.version for span in part.weight_versions or ()]
        if not found or not set(found) <= set(turn.tags):
            raise EngineError(
                f"vLLM sampled with weights {found} where {turn.tags} of {self._folder!r} were "
                "loaded; restart the engine"
            )
