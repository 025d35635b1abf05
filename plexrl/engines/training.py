"""One train function: epochs and minibatches of a policy-gradient step on a flat buffer.

Samples are sorted by prompt and sample before anything is summed, so the order in which they
are given cannot change a bit of the result.

Shape letters: B samples of a minibatch, T completion positions.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from dataflow.calls import Loss, TrainOptions
from dataflow.samples import Sample
from plexrl.engines.losses import resolve_loss
from plexrl.engines.network import Network
from plexrl.engines.protocol import TrainBatch
from plexrl.engines.scoring import Row, row_of, score
from plexrl.errors import EngineError


@dataclass(frozen=True, slots=True)
class _Minibatch:
    rows: tuple[Row, ...]
    advantages: torch.Tensor
    """Shape (B,)."""
    mask: torch.Tensor
    """1.0 where the policy drew the token, shape (B, T)."""
    rollout_logprobs: torch.Tensor
    """Shape (B, T)."""
    old_logprobs: torch.Tensor | None
    """Shape (B, T); None: the logprobs of the first step stand for them."""


class Trainer:
    """AdamW on the flat buffer of a network; its moments are the buffer's own regions."""

    def __init__(self, network: Network) -> None:
        if network.grads is None:
            raise EngineError(
                f"model {network.source.folder!r} was loaded frozen and cannot be trained; "
                "declare it trainable"
            )
        self.network = network
        self.grads = network.grads
        parameter = torch.nn.Parameter(network.weights)
        parameter.grad = self.grads
        self.optimizer = torch.optim.AdamW([parameter], fused=True)
        step_slot = network.layout.slots[-1]
        self.optimizer.state[parameter] = {
            "step": network.flat[step_slot.offset : step_slot.offset + 4]
            .view(torch.float32)
            .view(()),
            "exp_avg": network.region(1),
            "exp_avg_sq": network.region(2),
        }

    def train(self, batch: TrainBatch, options: TrainOptions) -> dict[str, float]:
        """Train in place; see `plexrl.engines.protocol.Engine.train`.

        Raises
        ------
        EngineError
            The batch or an option is malformed, the loss is unknown, raises or is not finite;
            the state is then the one from before the call.
        """
        _check(batch, options)
        loss = resolve_loss(options)
        group = self.optimizer.param_groups[0]
        group["lr"] = options.learning_rate
        group["betas"] = options.betas
        group["weight_decay"] = options.weight_decay
        num_steps = options.num_epochs * options.num_minibatches
        before = self.network.flat.clone() if num_steps > 1 else None
        minibatches = self._minibatches(batch, options, recompute_old=num_steps > 1)
        measured: list[dict[str, float]] = []
        try:
            for _ in range(options.num_epochs):
                measured += [self._step(minibatch, loss, options) for minibatch in minibatches]
        except BaseException:
            if before is not None:
                self.network.flat.copy_(before)
            raise
        return {
            name: math.fsum(step[name] for step in measured) / len(measured) for name in measured[0]
        }

    def _minibatches(
        self, batch: TrainBatch, options: TrainOptions, *, recompute_old: bool
    ) -> list[_Minibatch]:
        order = sorted(range(len(batch.samples)), key=lambda row: _sort_key(batch, row))
        minibatches = []
        for start in range(options.num_minibatches):
            members = order[start :: options.num_minibatches]
            minibatch = self._minibatch(batch, members)
            if minibatch.old_logprobs is None and recompute_old:
                with torch.no_grad():
                    scores = score(self.network.model, minibatch.rows, options.temperature)
                minibatch = replace(minibatch, old_logprobs=scores.logprobs)
            minibatches.append(minibatch)
        return minibatches

    def _minibatch(self, batch: TrainBatch, members: Sequence[int]) -> _Minibatch:
        samples = [batch.samples[row] for row in members]
        length = max(len(sample.token_ids) for sample in samples)
        old = batch.old_logprobs
        return _Minibatch(
            tuple(row_of(sample) for sample in samples),
            self._tensor([batch.advantages[row] for row in members]),
            self._tensor([_padded(sample.policy_mask, length) for sample in samples]),
            self._tensor([_padded(sample.logprobs, length) for sample in samples]),
            None if old is None else self._tensor([_padded(old[row], length) for row in members]),
        )

    def _tensor(self, values: Sequence[object]) -> torch.Tensor:
        return torch.tensor(values, dtype=torch.float32, device=self.network.device)

    def _step(self, batch: _Minibatch, loss: Loss, options: TrainOptions) -> dict[str, float]:
        self.grads.zero_()
        scores = score(self.network.model, batch.rows, options.temperature)
        logprobs_BT = scores.logprobs
        old_BT = batch.old_logprobs
        if old_BT is None:
            old_BT = logprobs_BT.detach()
        value = _evaluate(loss, logprobs_BT, old_BT, batch)
        value.backward()  # type: ignore[no-untyped-call]
        norm = float(torch.linalg.vector_norm(self.grads))
        loss_value = float(value.detach())
        if not (math.isfinite(loss_value) and math.isfinite(norm)):
            raise EngineError(
                f"the loss is {loss_value} and its gradient norm {norm} for {len(batch.rows)} "
                f"samples with advantages in [{float(batch.advantages.min())}, "
                f"{float(batch.advantages.max())}]; the weights stay as they were. Check "
                "advantages and loss, or lower the learning rate"
            )
        if norm > options.max_grad_norm:
            self.grads.mul_(options.max_grad_norm / norm)
        self.optimizer.step()
        with torch.no_grad():
            return _measure(batch, logprobs_BT, old_BT, scores.entropy, options) | {
                "loss": loss_value,
                "grad_norm": norm,
            }


def _evaluate(
    loss: Loss, logprobs_BT: torch.Tensor, old_BT: torch.Tensor, batch: _Minibatch
) -> torch.Tensor:
    name = getattr(loss, "__name__", repr(loss))
    try:
        value = loss(logprobs_BT, old_BT, batch.advantages, batch.mask)
    except Exception as error:
        raise EngineError(
            f"loss {name} raised {type(error).__name__}: {error}; it is called as "
            "loss(logprobs_BT, old_logprobs_BT, advantages_B, mask_BT)"
        ) from error
    if not isinstance(value, torch.Tensor) or value.numel() != 1 or not value.requires_grad:
        raise EngineError(
            f"loss {name} returned {value!r}; return one number, as a tensor computed from "
            "logprobs_BT"
        )
    return value


def _measure(
    batch: _Minibatch,
    logprobs_BT: torch.Tensor,
    old_BT: torch.Tensor,
    entropy_BT: torch.Tensor,
    options: TrainOptions,
) -> dict[str, float]:
    mask_BT = batch.mask
    num_tokens = float(mask_BT.sum())
    ratio_BT = (logprobs_BT - old_BT).exp()
    is_clipped_BT = (ratio_BT < 1 - options.clip_low) | (ratio_BT > 1 + options.clip_high)
    mismatch_BT = (old_BT - batch.rollout_logprobs).abs()
    scale = 1.0 / max(num_tokens, 1.0)
    return {
        "entropy": float((entropy_BT * mask_BT).sum()) * scale,
        "clip_fraction": float((is_clipped_BT * mask_BT).sum()) * scale,
        "logprob_mismatch": float((mismatch_BT * mask_BT).sum()) * scale,
        "num_tokens": num_tokens,
    }


def _padded(values: Sequence[float], length: int) -> list[float]:
    return [float(value) for value in values] + [0.0] * (length - len(values))


def _sort_key(batch: TrainBatch, row: int) -> tuple[object, ...]:
    sample: Sample = batch.samples[row]
    return (sample.prompt.index, sample.sample_index, sample.token_ids, batch.advantages[row])


def _check(batch: TrainBatch, options: TrainOptions) -> None:
    num_samples = len(batch.samples)
    if len(batch.advantages) != num_samples:
        raise EngineError(
            f"{num_samples} samples came with {len(batch.advantages)} advantages; give one each"
        )
    if options.num_epochs < 1 or options.num_minibatches < 1:
        raise EngineError(f"num_epochs and num_minibatches must be at least 1: {options}")
    if num_samples < options.num_minibatches:
        raise EngineError(
            f"{num_samples} samples cannot be split into {options.num_minibatches} minibatches; "
            "give more samples or fewer minibatches"
        )
    lengths = [len(sample.token_ids) for sample in batch.samples]
    if 0 in lengths:
        raise EngineError(f"sample {lengths.index(0)} of the batch has no completion to train on")
    old = batch.old_logprobs
    if old is not None and [len(values) for values in old] != lengths:
        raise EngineError("old_logprobs must hold one value per completion token of each sample")
