"""How the torch engine draws a turn: rows of one context length at a time.

A turn that is interrupted leaves its decode batch behind, key-value cache included, so that it goes
on without computing, or rounding, anything anew.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import torch
from transformers import PreTrainedModel

from dataflow.calls import GenerateOptions
from plexrl.engines.decoding import DecodeBatch, DecodeRules
from plexrl.engines.kv_cache import rows_that_fit
from plexrl.engines.protocol import Break, Unfinished
from plexrl.engines.text_codec import TextCodec
from plexrl.engines.turns import DecodeRow, Drawn

MAX_KEPT_BYTES = 2**30
"""Most memory of the caches of interrupted turns: a turn that would exceed it goes on until few
enough rows are left, rather than lose what it has drawn."""


class TorchDraw:
    """A `plexrl.engines.turns.Draw` by a resident `transformers` network.

    Parameters
    ----------
    model
        The resident network.
    codec
        Its tokenizer.
    context_limit
        Most tokens of prompt and completion together.
    """

    def __init__(self, model: PreTrainedModel, codec: TextCodec, context_limit: int) -> None:
        self.model = model
        self._codec = codec
        self._context_limit = context_limit
        self._kept: dict[str, DecodeBatch] = {}
        self._drawing: DecodeBatch | None = None

    @torch.inference_mode()
    def __call__(
        self, rows: Sequence[DecodeRow], options: GenerateOptions, stop: Break
    ) -> list[Drawn | None]:
        """Draw one turn of each row; results in the order of the rows."""
        drawn: dict[DecodeRow, Drawn] = {}
        try:
            for batch in self._batches(rows, options, stop.resumes):
                self._drawing = batch
                is_over = batch.run(partial(self._may_stop, stop, batch), stop.cancelled)
                drawn.update(
                    (row, turn)
                    for row, turn in zip(batch.rows, batch.drawn(), strict=True)
                    if turn is not None
                )
                if not is_over:
                    batch.shrink()
                    self._kept[stop.name] = batch
                if stop.is_asked():
                    break
        finally:
            self._drawing = None
        return [drawn.get(row) for row in rows]

    def unfinished(self) -> tuple[Unfinished, ...]:
        """Samples of the batch that is being drawn, read while it is."""
        batch = self._drawing
        return () if batch is None else batch.unfinished()

    def discard(self, name: str) -> None:
        """Give up what is kept of an interrupted turn."""
        self._kept.pop(name, None)

    def discard_all(self) -> None:
        """Give up what is kept of all interrupted turns."""
        self._kept.clear()

    @property
    def kept_bytes(self) -> int:
        """Bytes of caches of interrupted turns."""
        return sum(batch.cache_bytes for batch in self._kept.values())

    def _batches(
        self, rows: Sequence[DecodeRow], options: GenerateOptions, resumed: str
    ) -> Iterator[DecodeBatch]:
        """The batch that was interrupted, if it is still there, then the other rows."""
        by_length: dict[int, list[DecodeRow]] = {}
        kept = self._kept.pop(resumed, None)
        if kept is not None:
            yield kept
        begun = frozenset() if kept is None else frozenset(kept.rows)
        for row in rows:
            if row not in begun:
                by_length.setdefault(len(row.context), []).append(row)
        for length, members in sorted(by_length.items()):
            room = self._context_limit - length
            rules = _rules(self._codec, options, min(options.max_new_tokens, room))
            step = rows_that_fit(self.model.config, length + rules.max_new_tokens)
            for start in range(0, len(members), step):
                yield DecodeBatch(self.model, members[start : start + step], rules)

    def _may_stop(self, stop: Break, batch: DecodeBatch) -> bool:
        return stop.is_asked() and self.kept_bytes + batch.live_bytes <= MAX_KEPT_BYTES


def _rules(codec: TextCodec, options: GenerateOptions, max_new_tokens: int) -> DecodeRules:
    is_plain = not options.stop

    def has_stop(token_ids: Sequence[int]) -> bool:
        text = codec.decode(token_ids)
        return any(stop in text for stop in options.stop)

    return DecodeRules(
        max_new_tokens,
        options.temperature,
        codec.is_eos,
        None if is_plain else codec.may_end(options.stop),
        has_stop,
        options.top_p,
        options.top_k,
    )
