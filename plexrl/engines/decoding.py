"""Sampling with a key-value cache such that no row's tokens depend on its batch-mates.

What it takes on a CPU: one thread, batches of at least `MIN_ROWS` rows (smaller ones take
another matrix kernel), rows of one length per batch (padding changes the attention's sums),
and one uniform number per token, taken from the row's own counter-based stream.

Shape letters: B rows, V vocabulary, T positions.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import PreTrainedModel
from transformers.cache_utils import Cache

from dataflow.samples import EndReason, SampleId
from plexrl.engines.kv_cache import new_cache, take_rows
from plexrl.engines.protocol import Unfinished
from plexrl.engines.truncation import truncate
from plexrl.engines.turns import DecodeRow, Drawn

MIN_ROWS = 4
"""Fewest rows of a forward pass."""


@dataclass(frozen=True, slots=True)
class DecodeRules:
    """When a row of a batch ends."""

    max_new_tokens: int
    temperature: float
    is_eos: NDArray[np.bool_]
    """Per token whether it ends the sequence, shape (V,)."""
    may_stop: NDArray[np.bool_] | None = None
    """Per token whether it may complete a stop text, shape (V,); None without stop texts."""
    has_stop: Callable[[Sequence[int]], bool] = lambda _tokens: False
    """Whether tokens drawn in this turn contain a stop text."""
    top_p: float = 1.0
    top_k: int = 0
    """See `plexrl.engines.truncation.truncate`, as for `top_p`."""


class DecodeBatch:
    """Rows of one length, decoded together.

    Parameters
    ----------
    model
        The resident network.
    rows
        Rows whose contexts all have one length; see `plexrl.engines.kv_cache.rows_that_fit`.
    rules
        Limits of this batch.
    """

    def __init__(
        self, model: PreTrainedModel, rows: Sequence[DecodeRow], rules: DecodeRules
    ) -> None:
        self.model = model
        self.rules = rules
        self.num_rows = len(rows)
        self.rows = tuple(rows)
        limit = rules.max_new_tokens
        self.uniforms_BT = np.stack([_uniforms(row.draw_key, limit) for row in rows])
        self.tokens_BT = np.zeros((self.num_rows, limit), dtype=np.int64)
        self.logprobs_BT = np.zeros((self.num_rows, limit))
        self.lengths_B = np.full(self.num_rows, limit)
        self.ends: list[EndReason] = [EndReason.LENGTH] * self.num_rows
        self.is_live_B = np.ones(self.num_rows, dtype=bool)
        self.slots = np.resize(np.arange(self.num_rows), max(self.num_rows, MIN_ROWS))
        """Row that each row of the forward pass belongs to; repeated to reach `MIN_ROWS`."""
        self.cache, self.logits_BV = self._prefill([row.context for row in rows])
        self.num_steps = 0
        """Tokens drawn so far for each row that has not ended."""

    def run(
        self, is_stopped: Callable[[], bool], cancelled: Callable[[], frozenset[SampleId]]
    ) -> bool:
        """Decode until every row has ended, or until told to stop; whether all have ended.

        After a stop, the next call goes on where this one was. Both are asked after each token.
        """
        while True:
            step = self.num_steps
            tokens_B = self._draw(step)
            self._end_rows(step)
            self._cancel(step, cancelled())
            self.num_steps = step + 1
            if self.num_steps == self.rules.max_new_tokens:
                self.is_live_B[:] = False
            if not self.is_live_B.any():
                return True
            tokens_B = self._drop_ended(tokens_B)
            self.logits_BV = self._forward(tokens_B[:, None], self.cache, 1)[:, -1]
            if is_stopped():
                return False

    def drawn(self) -> list[Drawn | None]:
        """What was drawn for each row; None for those that have not ended."""
        return [
            None
            if self.is_live_B[row]
            else Drawn(
                tuple(self.tokens_BT[row, :length].tolist()),
                tuple(self.logprobs_BT[row, :length].tolist()),
                self.ends[row],
            )
            for row, length in enumerate(self.lengths_B.tolist())
        ]

    def unfinished(self) -> tuple[Unfinished, ...]:
        """Rows that have not ended, and how many tokens they have."""
        num_tokens, is_live = self.num_steps, self.is_live_B.tolist()
        return tuple(
            Unfinished(row.sample, num_tokens) for row in itertools.compress(self.rows, is_live)
        )

    def shrink(self) -> None:
        """Give up the memory of rows that have ended."""
        kept = np.flatnonzero(self.is_live_B[self.slots])
        self.logits_BV = self._keep_slots(kept, self.logits_BV)

    @property
    def cache_bytes(self) -> int:
        """Bytes of its key-value cache."""
        layers = self.cache.layers
        return sum(layer.keys.nbytes + layer.values.nbytes for layer in layers)

    @property
    def live_bytes(self) -> int:
        """Bytes its cache has after `shrink`."""
        num_live = max(int(self.is_live_B[self.slots].sum()), MIN_ROWS)
        return self.cache_bytes * num_live // len(self.slots)

    def _prefill(self, contexts: Sequence[tuple[int, ...]]) -> tuple[Cache, torch.Tensor]:
        """Run each distinct context once, then spread its cache over its rows."""
        place = {context: index for index, context in enumerate(dict.fromkeys(contexts))}
        distinct = list(place)
        length = len(distinct[0])
        num_kept = min(length, MIN_ROWS)
        while len(distinct) * num_kept < MIN_ROWS:
            distinct.append(distinct[0])
        cache = new_cache(self.model.config.num_hidden_layers, length + self.rules.max_new_tokens)
        input_BT = torch.tensor(distinct, device=self.model.device)
        logits_BV = self._forward(input_BT, cache, num_kept)[:, -1]
        index = [place[contexts[row]] for row in self.slots.tolist()]
        rows_B = torch.tensor(index, device=self.model.device)
        take_rows(cache, rows_B)
        return cache, logits_BV.index_select(0, rows_B)

    def _forward(self, input_BT: torch.Tensor, cache: Cache, num_kept: int) -> torch.Tensor:
        logits_BTV: torch.Tensor = self.model(
            input_ids=input_BT, past_key_values=cache, use_cache=True, logits_to_keep=num_kept
        ).logits
        return logits_BTV

    def _draw(self, step: int) -> torch.Tensor:
        """Draw one token per slot and record it for the live rows."""
        temperature = self.rules.temperature
        if temperature == 0:
            logprobs_BV = self.logits_BV.log_softmax(-1)
            tokens_B = self.logits_BV.argmax(-1)
        else:
            scaled_BV = truncate(self.logits_BV / temperature, self.rules.top_k, self.rules.top_p)
            logprobs_BV = scaled_BV.log_softmax(-1)
            tokens_B = _inverse_cdf(scaled_BV, self.uniforms_BT[self.slots, step])
        drawn_B = logprobs_BV.gather(-1, tokens_B[:, None])[:, 0]
        is_live = self.is_live_B[self.slots]
        rows = self.slots[is_live]
        self.tokens_BT[rows, step] = tokens_B.cpu().numpy()[is_live]
        self.logprobs_BT[rows, step] = drawn_B.cpu().numpy()[is_live]
        return tokens_B

    def _end_rows(self, step: int) -> None:
        tokens_B = self.tokens_BT[:, step]
        stopped_B = self.rules.is_eos[tokens_B] & self.is_live_B
        for row in np.flatnonzero(stopped_B).tolist():
            self._end(row, step, EndReason.STOP)
        if self.rules.may_stop is not None:
            may_stop_B = self.rules.may_stop[tokens_B] & self.is_live_B
            for row in np.flatnonzero(may_stop_B).tolist():
                if self.rules.has_stop(self.tokens_BT[row, : step + 1].tolist()):
                    self._end(row, step, EndReason.TOOL_CALL)

    def _cancel(self, step: int, cancelled: frozenset[SampleId]) -> None:
        """End the live rows of these samples."""
        if cancelled:
            for row in np.flatnonzero(self.is_live_B).tolist():
                if self.rows[row].sample in cancelled:
                    self._end(row, step, EndReason.CANCELLED)

    def _end(self, row: int, step: int, reason: EndReason) -> None:
        self.is_live_B[row] = False
        self.lengths_B[row] = step + 1
        self.ends[row] = reason

    def _drop_ended(self, tokens_B: torch.Tensor) -> torch.Tensor:
        """Give up the slots of ended rows once they are half of all: copying costs too."""
        kept = np.flatnonzero(self.is_live_B[self.slots])
        if len(self.slots) <= MIN_ROWS or 2 * len(kept) > len(self.slots):
            return tokens_B
        return self._keep_slots(kept, tokens_B)

    def _keep_slots(self, kept: NDArray[np.intp], values: torch.Tensor) -> torch.Tensor:
        """Keep these slots, repeated to reach `MIN_ROWS`; returns their rows of `values`."""
        kept = np.resize(kept, max(len(kept), MIN_ROWS))
        kept_B = torch.from_numpy(kept).to(values.device)
        self.slots = self.slots[kept]
        take_rows(self.cache, kept_B)
        return values.index_select(0, kept_B)


def _uniforms(draw_key: int, count: int) -> NDArray[np.float64]:
    return np.random.Generator(np.random.Philox(key=draw_key)).random(count)


def _inverse_cdf(scaled_BV: torch.Tensor, uniforms_B: NDArray[np.float64]) -> torch.Tensor:
    """The token at which the cumulated probability first exceeds the uniform."""
    cumulated_BV = scaled_BV.softmax(-1).cumsum(-1, dtype=torch.float64)
    uniforms = torch.from_numpy(uniforms_B).to(scaled_BV.device)
    threshold_B1 = uniforms[:, None] * cumulated_BV[:, -1:]
    return (cumulated_BV <= threshold_B1).sum(-1).clamp_(max=scaled_BV.shape[-1] - 1)
