"""Batches as tensors: what one optimizer step sees, and the parts it is computed in.

Samples are sorted by prompt and sample before anything is summed, so the order in which they
are given cannot change a bit of the result.

Shape letters: B samples of a minibatch, T completion positions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from dataflow.calls import TrainOptions
from dataflow.samples import Sample
from plexrl.engines.protocol import TrainBatch
from plexrl.engines.ranks import Ranks
from plexrl.engines.scoring import Row, row_of
from plexrl.errors import EngineError

PerToken = Sequence[Sequence[float]]


@dataclass(frozen=True, slots=True)
class Minibatch:
    """Samples of one optimizer step, or a part of them."""

    rows: tuple[Row, ...]
    advantages: torch.Tensor
    """Shape (B,), or (B, T) where they are per token; of a critic: returns."""
    mask: torch.Tensor
    """1.0 where the policy drew the token, shape (B, T)."""
    rollout_logprobs: torch.Tensor
    """Shape (B, T)."""
    old_logprobs: torch.Tensor | None
    """Shape (B, T); None: the logprobs of the first step stand for them. Of a critic: values."""
    reference_logprobs: torch.Tensor | None
    """Shape (B, T); None where there is no reference."""

    @property
    def num_tokens(self) -> float:
        """Tokens the policy drew."""
        return float(self.mask.sum())

    def parts(self, size: int | None) -> Iterator[Minibatch]:
        """Consecutive parts of at most `size` samples; the whole where it is None."""
        if size is None or size >= len(self.rows):
            yield self
            return
        for start in range(0, len(self.rows), size):
            yield self.select(range(start, min(start + size, len(self.rows))))

    def select(self, members: Sequence[int]) -> Minibatch:
        """Some of the samples, by ascending place, as wide as the whole."""
        if len(members) == len(self.rows):
            return self
        old, reference = self.old_logprobs, self.reference_logprobs
        index = torch.tensor(members, dtype=torch.int64, device=self.mask.device)
        return Minibatch(
            tuple(self.rows[row] for row in members),
            self.advantages[index],
            self.mask[index],
            self.rollout_logprobs[index],
            None if old is None else old[index],
            None if reference is None else reference[index],
        )


@dataclass(frozen=True, slots=True)
class Share:
    """What one rank computes of a minibatch."""

    members: tuple[int, ...]
    """Its rows, by their place in the minibatch; may be none."""
    fillers: tuple[Row, ...]
    """Rows computed for the form's sake: ranks that shard a network run equal forwards."""


def share_of(rows: Sequence[Row], ranks: Ranks) -> Share:
    """The share of a rank: of each padded length as many rows as any other rank."""
    if ranks.count == 1:
        return Share(tuple(range(len(rows))), ())
    by_length: dict[int, list[int]] = {}
    for index, row in enumerate(rows):
        by_length.setdefault(row.padded_length, []).append(index)
    members: list[int] = []
    fillers: list[Row] = []
    for found in by_length.values():
        mine = found[ranks.index :: ranks.count]
        members += mine
        fillers += [rows[found[0]]] * (-(-len(found) // ranks.count) - len(mine))
    return Share(tuple(sorted(members)), tuple(fillers))


def minibatches(batch: TrainBatch, count: int, device: torch.device) -> list[Minibatch]:
    """The samples of a batch, dealt out to `count` minibatches."""
    order = sorted(range(len(batch.samples)), key=lambda row: _sort_key(batch, row))
    return [_minibatch(batch, order[start::count], device) for start in range(count)]


def check_batch(batch: TrainBatch, options: TrainOptions) -> None:
    """Check a batch against the options it is trained with.

    Raises
    ------
    EngineError
        They do not fit, or an option is out of range.
    """
    num_samples = len(batch.samples)
    if len(batch.advantages) != num_samples:
        raise EngineError(
            f"{num_samples} samples came with {len(batch.advantages)} advantages; give one each"
        )
    if options.num_epochs < 1 or options.num_minibatches < 1:
        raise EngineError(f"num_epochs and num_minibatches must be at least 1: {options}")
    if options.micro_batch_size is not None and options.micro_batch_size < 1:
        raise EngineError(f"micro_batch_size is {options.micro_batch_size}; give at least 1")
    if num_samples < options.num_minibatches:
        raise EngineError(
            f"{num_samples} samples cannot be split into {options.num_minibatches} minibatches; "
            "give more samples or fewer minibatches"
        )
    lengths = [len(sample.token_ids) for sample in batch.samples]
    if 0 in lengths:
        raise EngineError(f"sample {lengths.index(0)} of the batch has no completion to train on")
    per_token: dict[str, PerToken | None] = {
        "old_logprobs": batch.old_logprobs,
        "reference_logprobs": batch.reference_logprobs,
    }
    if isinstance(batch.advantages[0], tuple):
        per_token["per-token advantages"] = batch.advantages
    for name, given in per_token.items():
        if given is not None and [len(values) for values in given] != lengths:
            raise EngineError(f"{name} must hold one value per completion token of each sample")
    if options.kl_coef and batch.reference_logprobs is None:
        raise EngineError(
            f"kl_coef is {options.kl_coef} but no reference log-probabilities came with the batch; "
            "give train reference_logprobs=it.reference.logprobs(samples), or leave kl_coef out"
        )


def _minibatch(batch: TrainBatch, members: Sequence[int], device: torch.device) -> Minibatch:
    samples = [batch.samples[row] for row in members]
    length = max(len(sample.token_ids) for sample in samples)

    def tensor(values: Sequence[object]) -> torch.Tensor:
        return torch.tensor(values, dtype=torch.float32, device=device)

    def per_token(values: PerToken | None) -> torch.Tensor | None:
        return None if values is None else tensor([_padded(values[r], length) for r in members])

    advantages = [batch.advantages[row] for row in members]
    return Minibatch(
        tuple(row_of(sample) for sample in samples),
        tensor([_padded(a, length) if isinstance(a, tuple) else a for a in advantages]),
        tensor([_padded(sample.policy_mask, length) for sample in samples]),
        tensor([_padded(sample.logprobs, length) for sample in samples]),
        per_token(batch.old_logprobs),
        per_token(batch.reference_logprobs),
    )


def _padded(values: Sequence[float], length: int) -> list[float]:
    return [float(value) for value in values] + [0.0] * (length - len(values))


def place_of(sample: Sample) -> tuple[object, ...]:
    """What a sample is sorted by."""
    return sample.prompt.index, sample.sample_index, sample.token_ids


def _sort_key(batch: TrainBatch, row: int) -> tuple[object, ...]:
    return (*place_of(batch.samples[row]), batch.advantages[row])
