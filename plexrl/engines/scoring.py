"""Log-probabilities of completions by the training forward, independent of batch-mates.

Rows are padded on the right to a multiple of `PAD_MULTIPLE` and run with rows of the same
padded length, so that a row's result depends on nothing but the row.

Shape letters: B rows, T completion positions, L input positions, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from transformers import PreTrainedModel

from dataflow.samples import Sample
from plexrl.engines.decoding import MIN_ROWS

PAD_MULTIPLE = 4
"""Inputs are padded to multiples of this: few buckets, little waste."""

MAX_LOGITS = 2**26
"""Most logits (rows × positions × vocabulary) of one forward: 256 MiB in float32."""


@dataclass(frozen=True, slots=True)
class Row:
    """One sample as the training forward sees it."""

    token_ids: tuple[int, ...]
    """Prompt and completion."""
    prompt_length: int

    @property
    def completion_length(self) -> int:
        """Tokens after the prompt."""
        return len(self.token_ids) - self.prompt_length

    @property
    def padded_length(self) -> int:
        """Input positions after padding; the last token is predicted, never read."""
        return -(-(len(self.token_ids) - 1) // PAD_MULTIPLE) * PAD_MULTIPLE


@dataclass(frozen=True, slots=True)
class Scores:
    """What a forward pass says about the completions of its rows."""

    logprobs: torch.Tensor
    """Nats, shape (B, T); 0 beyond a row's completion."""
    entropy: torch.Tensor
    """Entropy (nats) of the distribution at each position, shape (B, T); without gradient unless
    it was asked for."""


@dataclass(frozen=True, slots=True)
class _Inputs:
    """Rows of one padded length, as tensors."""

    tokens: torch.Tensor
    """Shape (B, L + 1)."""
    targets: torch.Tensor
    """Position of each completion token in `tokens`, shape (B, T)."""
    mask: torch.Tensor
    """Whether a row has that many completion tokens, shape (B, T)."""
    num_kept: int
    """Input positions, counted from the end, whose output is needed."""


def row_of(sample: Sample) -> Row:
    """The row of a sample."""
    return Row(sample.prompt_token_ids + sample.token_ids, len(sample.prompt_token_ids))


def score(
    model: PreTrainedModel,
    rows: Sequence[Row],
    temperature: float,
    *,
    has_entropy_grad: bool = False,
) -> Scores:
    """Score all completions, with gradient where autograd is on.

    Parameters
    ----------
    model
        The resident network.
    rows
        At least one; T is the longest completion among them.
    temperature
        The logits are divided by it; 0 counts as 1, as in sampling.
    has_entropy_grad
        Whether the entropy has a gradient too.
    """
    is_graded = has_entropy_grad and torch.is_grad_enabled()

    def of_bucket(inputs: _Inputs) -> Scores:
        return _score_bucket(model, inputs, temperature or 1.0, is_graded)

    return _in_buckets(model, rows, model.config.vocab_size, of_bucket)


def estimate(model: PreTrainedModel, rows: Sequence[Row]) -> Scores:
    """A critic's estimate before each completion token, in the place of log-probabilities."""

    def of_bucket(inputs: _Inputs) -> Scores:
        values_BL1 = model(input_ids=inputs.tokens[:, :-1], use_cache=False).logits
        values_BT = values_BL1[..., 0].float().gather(1, inputs.targets - 1) * inputs.mask
        return Scores(values_BT, torch.zeros_like(values_BT, requires_grad=False))

    return _in_buckets(model, rows, 1, of_bucket)


def _in_buckets(
    model: PreTrainedModel,
    rows: Sequence[Row],
    num_outputs: int,
    of_bucket: Callable[[_Inputs], Scores],
) -> Scores:
    """Scores of rows that are run bucket by bucket, in the order of the rows."""
    num_positions = max(row.completion_length for row in rows)
    order: list[int] = []
    parts: list[Scores] = []
    for bucket in _buckets(rows, num_outputs):
        order += bucket
        parts.append(of_bucket(_inputs(model, [rows[row] for row in bucket], num_positions)))
    place = torch.empty(len(order), dtype=torch.int64)
    place[torch.tensor(order)] = torch.arange(len(order))
    place = place.to(model.device)
    return Scores(
        torch.cat([part.logprobs for part in parts]).index_select(0, place),
        torch.cat([part.entropy for part in parts]).index_select(0, place),
    )


def _buckets(rows: Sequence[Row], vocab_size: int) -> list[list[int]]:
    """Rows of equal padded length, in chunks that bound the memory of the logits."""
    by_length: dict[int, list[int]] = {}
    for index, row in enumerate(rows):
        by_length.setdefault(row.padded_length, []).append(index)
    buckets: list[list[int]] = []
    for length, members in sorted(by_length.items()):
        chunk = max(1, MAX_LOGITS // (length * vocab_size))
        buckets += [members[start : start + chunk] for start in range(0, len(members), chunk)]
    return buckets


def _inputs(model: PreTrainedModel, rows: Sequence[Row], num_positions: int) -> _Inputs:
    length = rows[0].padded_length
    tokens = torch.zeros(len(rows), length + 1, dtype=torch.int64)
    for index, row in enumerate(rows):
        tokens[index, : len(row.token_ids)] = torch.tensor(row.token_ids)
    starts_B = torch.tensor([row.prompt_length for row in rows], device=model.device)
    lengths_B = torch.tensor([row.completion_length for row in rows], device=model.device)
    steps_T = torch.arange(num_positions, device=model.device)
    return _Inputs(
        tokens.to(model.device),
        (starts_B[:, None] + steps_T).clamp(max=length),
        steps_T < lengths_B[:, None],
        max(length - min(row.prompt_length for row in rows) + 1, MIN_ROWS),
    )


def _score_bucket(
    model: PreTrainedModel, inputs: _Inputs, temperature: float, has_entropy_grad: bool
) -> Scores:
    length = inputs.tokens.shape[1] - 1
    logits_BLV = model(
        input_ids=inputs.tokens[:, :length], use_cache=False, logits_to_keep=inputs.num_kept
    ).logits
    first = length - logits_BLV.shape[1]
    rows_B1 = torch.arange(len(inputs.tokens), device=model.device)[:, None]
    picked_BTV = logits_BLV[rows_B1, (inputs.targets - 1 - first).clamp(min=0)].float()
    all_logprobs_BTV = (picked_BTV / temperature).log_softmax(-1)
    token_BT = inputs.tokens.gather(1, inputs.targets)
    logprobs_BT = all_logprobs_BTV.gather(-1, token_BT[:, :, None])[:, :, 0] * inputs.mask
    with torch.set_grad_enabled(has_entropy_grad):
        entropy_BT = -(all_logprobs_BTV.exp() * all_logprobs_BTV).sum(-1) * inputs.mask
    return Scores(logprobs_BT, entropy_BT)
