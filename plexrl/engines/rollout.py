"""How the torch engine draws a turn: rows of one context length at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from transformers import PreTrainedModel

from dataflow.calls import GenerateOptions
from plexrl.engines.decoding import DecodeBatch, DecodeRules
from plexrl.engines.kv_cache import rows_that_fit
from plexrl.engines.text_codec import TextCodec
from plexrl.engines.turns import DecodeRow, Drawn


@dataclass(frozen=True, slots=True)
class TorchDraw:
    """A `plexrl.engines.turns.Draw` by a resident `transformers` network."""

    model: PreTrainedModel
    codec: TextCodec
    context_limit: int
    """Most tokens of prompt and completion together."""

    def __call__(self, rows: Sequence[DecodeRow], options: GenerateOptions) -> list[Drawn]:
        """Draw one turn of each row; results in the order of the rows."""
        by_length: dict[int, list[int]] = {}
        for index, row in enumerate(rows):
            by_length.setdefault(len(row.context), []).append(index)
        drawn: dict[int, Drawn] = {}
        for length, members in sorted(by_length.items()):
            room = self.context_limit - length
            rules = _rules(self.codec, options, min(options.max_new_tokens, room))
            step = rows_that_fit(self.model.config, length + rules.max_new_tokens)
            for start in range(0, len(members), step):
                batch = members[start : start + step]
                turns = _decode(self.model, [rows[index] for index in batch], rules)
                drawn.update(zip(batch, turns, strict=True))
        return [drawn[index] for index in range(len(rows))]


@torch.inference_mode()
def _decode(model: PreTrainedModel, rows: Sequence[DecodeRow], rules: DecodeRules) -> list[Drawn]:
    return DecodeBatch(model, rows, rules).run()


def _rules(codec: TextCodec, options: GenerateOptions, max_new_tokens: int) -> DecodeRules:
    if not options.stop:
        return DecodeRules(max_new_tokens, options.temperature, codec.is_eos)

    def has_stop(token_ids: Sequence[int]) -> bool:
        text = codec.decode(token_ids)
        return any(stop in text for stop in options.stop)

    return DecodeRules(
        max_new_tokens, options.temperature, codec.is_eos, codec.may_end(options.stop), has_stop
    )
