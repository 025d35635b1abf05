"""One train function: epochs and minibatches of a gradient step on a flat buffer.

Shape letters: B samples of a minibatch, T completion positions.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch
from transformers import PreTrainedModel
from transformers.modeling_layers import GradientCheckpointingLayer

from dataflow.calls import Loss, TrainOptions
from plexrl.engines.aggregation import part_weight, resolve_aggregation
from plexrl.engines.folders import HEAD_VALUE
from plexrl.engines.losses import per_token, resolve_loss
from plexrl.engines.minibatch import Minibatch, check_batch, minibatches
from plexrl.engines.network import Network
from plexrl.engines.penalties import importance_weights, resolve_kl
from plexrl.engines.protocol import TrainBatch
from plexrl.engines.scoring import Scores, estimate, score
from plexrl.errors import EngineError


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
        check_batch(batch, options)
        loss = resolve_loss(options)
        group = self.optimizer.param_groups[0]
        group["lr"] = options.learning_rate
        group["betas"] = options.betas
        group["weight_decay"] = options.weight_decay
        num_steps = options.num_epochs * options.num_minibatches
        before = self.network.flat.clone() if num_steps > 1 else None
        measured: list[dict[str, float]] = []
        try:
            with _checkpointed(self.network.model, options.is_checkpointed):
                steps = self._minibatches(batch, options, recompute_old=num_steps > 1)
                for _ in range(options.num_epochs):
                    measured += [self._step(minibatch, loss, options) for minibatch in steps]
        except BaseException:
            if before is not None:
                self.network.flat.copy_(before)
            raise
        return {
            name: math.fsum(step[name] for step in measured) / len(measured) for name in measured[0]
        }

    def _minibatches(
        self, batch: TrainBatch, options: TrainOptions, *, recompute_old: bool
    ) -> list[Minibatch]:
        dealt = minibatches(batch, options.num_minibatches, self.network.device)
        if not recompute_old or batch.old_logprobs is not None:
            return dealt
        with torch.no_grad():
            return [replace(part, old_logprobs=self._old(part, options)) for part in dealt]

    def _old(self, minibatch: Minibatch, options: TrainOptions) -> torch.Tensor:
        """What the network says before the first step, in the parts training will use."""
        parts = minibatch.parts(options.micro_batch_size)
        width = minibatch.mask.shape[1]
        found = [self._score(part, options).logprobs for part in parts]
        return torch.cat([_widened(part_BT, width) for part_BT in found])

    def _score(self, batch: Minibatch, options: TrainOptions) -> Scores:
        model = self.network.model
        is_half = options.autocast is not None
        with torch.autocast(self.network.device.type, torch.bfloat16, enabled=is_half):
            if self.network.source.head == HEAD_VALUE:
                return estimate(model, batch.rows)
            return score(
                model,
                batch.rows,
                options.temperature,
                has_entropy_grad=options.entropy_coef != 0,
            )

    def _step(self, batch: Minibatch, loss: Loss, options: TrainOptions) -> dict[str, float]:
        self.grads.zero_()
        num_tokens = batch.num_tokens
        parts = [
            self._backward(part, batch, loss, options)
            for part in batch.parts(options.micro_batch_size)
        ]
        loss_value = math.fsum(part.loss for part in parts)
        norm = float(torch.linalg.vector_norm(self.grads))
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
        scale = 1.0 / max(num_tokens, 1.0)
        sums = {name: math.fsum(part.sums[name] for part in parts) for name in parts[0].sums}
        return {
            **{name: total * scale for name, total in sums.items()},
            "num_tokens": num_tokens,
            "loss": loss_value,
            "grad_norm": norm,
        }

    def _backward(
        self, part: Minibatch, whole: Minibatch, loss: Loss, options: TrainOptions
    ) -> _Part:
        """Add the gradient of one part of a minibatch."""
        scores = self._score(part, options)
        width = part.mask.shape[1]
        logprobs_BT = _widened(scores.logprobs, width)
        entropy_BT = _widened(scores.entropy, width)
        old_BT = logprobs_BT.detach() if part.old_logprobs is None else part.old_logprobs
        is_critic = self.network.source.head == HEAD_VALUE
        if options.importance_cap is not None and not is_critic:
            weights_BT = importance_weights(old_BT, part.rollout_logprobs, options.importance_cap)
            part = replace(part, advantages=per_token(part.advantages) * weights_BT)
        value = _evaluate(loss, logprobs_BT, old_BT, part)
        value = value + _penalty(logprobs_BT, entropy_BT, part, options)
        if len(part.rows) != len(whole.rows):
            value = value * part_weight(
                options.aggregation, part.mask, whole.num_tokens, len(whole.rows)
            )
        value.backward()  # type: ignore[no-untyped-call]
        with torch.no_grad():
            sums = (
                _measure_critic(part, logprobs_BT)
                if is_critic
                else _measure(part, logprobs_BT, old_BT, entropy_BT, options)
            )
        return _Part(float(value.detach()), sums)


@dataclass(frozen=True, slots=True)
class _Part:
    """What one part of a minibatch adds."""

    loss: float
    sums: dict[str, float]
    """Sums over tokens."""


def _evaluate(
    loss: Loss, logprobs_BT: torch.Tensor, old_BT: torch.Tensor, batch: Minibatch
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


def _penalty(
    logprobs_BT: torch.Tensor, entropy_BT: torch.Tensor, batch: Minibatch, options: TrainOptions
) -> torch.Tensor | float:
    """What the distance to the reference and the entropy add, averaged like the loss."""
    average = resolve_aggregation(options.aggregation)
    limit = options.max_completion_tokens
    total: torch.Tensor | float = 0.0
    if options.kl_coef and batch.reference_logprobs is not None:
        kl_BT = resolve_kl(options.kl_estimator)(logprobs_BT, batch.reference_logprobs)
        total = total + options.kl_coef * average(kl_BT, batch.mask, limit)
    if options.entropy_coef:
        total = total - options.entropy_coef * average(entropy_BT, batch.mask, limit)
    return total


def _measure(
    batch: Minibatch,
    logprobs_BT: torch.Tensor,
    old_BT: torch.Tensor,
    entropy_BT: torch.Tensor,
    options: TrainOptions,
) -> dict[str, float]:
    ratio_BT = (logprobs_BT - old_BT).exp()
    is_clipped_BT = (ratio_BT < 1 - options.clip_low) | (ratio_BT > 1 + options.clip_high)
    per_token_BT = {
        "entropy": entropy_BT,
        "clip_fraction": is_clipped_BT,
        "logprob_mismatch": (old_BT - batch.rollout_logprobs).abs(),
    }
    if options.importance_cap is not None:
        per_token_BT["importance_weight"] = importance_weights(
            old_BT, batch.rollout_logprobs, options.importance_cap
        )
    if batch.reference_logprobs is not None:
        kl_BT = resolve_kl(options.kl_estimator)(logprobs_BT, batch.reference_logprobs)
        per_token_BT["kl"] = kl_BT
    return {name: float((v_BT * batch.mask).sum()) for name, v_BT in per_token_BT.items()}


def _measure_critic(batch: Minibatch, values_BT: torch.Tensor) -> dict[str, float]:
    returns_BT = per_token(batch.advantages).expand_as(values_BT)
    return {
        "value": float((values_BT * batch.mask).sum()),
        "value_error": float(((values_BT - returns_BT).abs() * batch.mask).sum()),
    }


def _widened(values_BT: torch.Tensor, width: int) -> torch.Tensor:
    """Values of a part whose longest completion is shorter than that of the whole."""
    missing = width - values_BT.shape[1]
    return torch.nn.functional.pad(values_BT, (0, missing)) if missing else values_BT


@contextmanager
def _checkpointed(model: PreTrainedModel, is_on: bool) -> Iterator[None]:
    """Layers forget their activations and compute them again; dropout stays off."""
    if not is_on:
        yield
        return
    layers = [m for m in model.modules() if isinstance(m, GradientCheckpointingLayer)]
    if not layers:
        raise EngineError(
            f"a model of type {model.config.model_type!r} cannot be checkpointed; leave "
            "is_checkpointed out"
        )
    model.gradient_checkpointing_enable({"use_reentrant": False})
    try:
        for layer in layers:
            # Only the layer itself: its children would begin to drop activations out.
            layer.training = True
        yield
    finally:
        model.gradient_checkpointing_disable()
        model.eval()
