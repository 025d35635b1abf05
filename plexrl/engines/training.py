"""One train function: epochs and minibatches of a gradient step.

Shape letters: B samples of a minibatch, T completion positions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace

import torch
from transformers import PreTrainedModel
from transformers.modeling_layers import GradientCheckpointingLayer

from dataflow.calls import Loss, TrainOptions
from dataflow.plugged import RAISED, told
from dataflow.samples import Sample, teaching
from plexrl.engines.aggregation import part_weight, resolve_aggregation
from plexrl.engines.folders import HEAD_VALUE
from plexrl.engines.foresight import Foresight, GivenUpError, watched
from plexrl.engines.forward import Forward, forward_of
from plexrl.engines.losses import clipped, per_token, resolve_loss
from plexrl.engines.minibatch import Minibatch, check_batch, minibatches, place_of, share_of
from plexrl.engines.optimized import Optimizable
from plexrl.engines.penalties import importance_weights, resolve_kl
from plexrl.engines.protocol import TrainBatch
from plexrl.engines.scoring import Row, Scores, estimate, row_of, score
from plexrl.errors import EngineError, EngineStoppedError

NORM_PIECE = 2**14
"""Elements of a gradient that are summed in one float32 sum."""

STOPPED = "training was stopped, as asked; the weights stay as they were"


class Trainer:
    """AdamW on what a network holds of its weights; the moments are the state's own."""

    def __init__(self, network: Optimizable) -> None:
        self.network = network
        self.ranks = network.ranks
        self.foresight = Foresight()
        found = network.optimized()
        self.parameters = [torch.nn.Parameter(part.weights) for part in found]
        self.optimizer = torch.optim.AdamW(self.parameters, fused=True)
        for parameter, part in zip(self.parameters, found, strict=True):
            self.optimizer.state[parameter] = {
                "step": part.step,
                "exp_avg": part.exp_avg,
                "exp_avg_sq": part.exp_avg_sq,
            }

    def train(
        self,
        batch: TrainBatch,
        options: TrainOptions,
        is_stopped: Callable[[], bool] = lambda: False,
    ) -> dict[str, float]:
        """Train in place; see `plexrl.engines.protocol.Engine.train`.

        Raises
        ------
        EngineError
            The batch or an option is malformed, the loss is unknown, raises or is not finite;
            the state is then the one from before the call.
        EngineStoppedError
            It was stopped; the same holds.
        """
        batch = replace(batch, samples=teaching(batch.samples))
        check_batch(batch, options)
        loss = resolve_loss(options)
        group = self.optimizer.param_groups[0]
        group["lr"] = float(options.learning_rate)
        group["betas"] = options.betas
        group["weight_decay"] = options.weight_decay
        num_steps = options.num_epochs * options.num_minibatches
        before = self.network.snapshot() if num_steps > 1 else None
        measured: list[dict[str, float]] = []
        try:
            with _checkpointed(self.network.model, options.is_checkpointed):
                steps = self._minibatches(batch, options, recompute_old=num_steps > 1)
                for _ in range(options.num_epochs):
                    measured += [self._step(part, loss, options, is_stopped) for part in steps]
        except BaseException:
            if before is not None:
                self.network.restore(before)
            raise
        return {
            name: math.fsum(step[name] for step in measured) / len(measured) for name in measured[0]
        }

    def foresee(
        self, samples: Sequence[Sample], forward: Forward, may_go_on: Callable[[], bool]
    ) -> None:
        """Compute what training on these samples begins with, while that may go on."""
        rows = tuple(map(row_of, sorted(samples, key=place_of)))
        if not all(row.completion_length for row in rows):
            return
        width = max(row.completion_length for row in rows)
        with suppress(GivenUpError), watched(self.network.model, may_go_on):
            self.foresight.keep(rows, width, forward, self._forward(rows, forward))

    def _minibatches(
        self, batch: TrainBatch, options: TrainOptions, *, recompute_old: bool
    ) -> list[Minibatch]:
        dealt = minibatches(batch, options.num_minibatches, self.network.device)
        if not recompute_old or batch.old_logprobs is not None:
            return dealt
        with torch.no_grad():
            return [replace(part, old_logprobs=self._old(part, options)) for part in dealt]

    def _old(self, minibatch: Minibatch, options: TrainOptions) -> torch.Tensor:
        """What the network says before the first step, in the parts training will use.

        Rows that other ranks compute stay zero: the shares of a step are those of the next.
        """
        old_BT = torch.zeros_like(minibatch.mask)
        start = 0
        for part in minibatch.parts(options.micro_batch_size):
            share = share_of(part.rows, self.ranks)
            found_BT = self._score(part.select(share.members), share.fillers, options).logprobs
            old_BT[[start + row for row in share.members]] = found_BT
            start += len(part.rows)
        return old_BT

    def _score(self, batch: Minibatch, fillers: tuple[Row, ...], options: TrainOptions) -> Scores:
        """Scores of a batch, as wide as its mask; fillers run along and are dropped."""
        rows, forward = batch.rows + fillers, forward_of(options)
        count, width = batch.mask.shape
        foreseen = self.foresight.take(rows, width, forward) if torch.is_grad_enabled() else None
        found = self._forward(rows, forward) if foreseen is None else foreseen
        return Scores(
            _widened(found.logprobs, width)[:count], _widened(found.entropy, width)[:count]
        )

    def _forward(self, rows: tuple[Row, ...], forward: Forward) -> Scores:
        model = self.network.model
        with torch.autocast(self.network.device.type, torch.bfloat16, enabled=forward.is_half):
            if self.network.source.head == HEAD_VALUE:
                return estimate(model, rows)
            return score(
                model, rows, forward.temperature, has_entropy_grad=forward.has_entropy_grad
            )

    def _step(
        self,
        batch: Minibatch,
        loss: Loss,
        options: TrainOptions,
        is_stopped: Callable[[], bool],
    ) -> dict[str, float]:
        all_parts, norm = self._gradients(batch, loss, options, is_stopped)
        gradients = self.network.gradients()
        loss_value = math.fsum(part.loss for part in all_parts)
        if not (math.isfinite(loss_value) and math.isfinite(norm)):
            raise EngineError(
                f"the loss is {loss_value} and its gradient norm {norm} for {len(batch.rows)} "
                f"samples with advantages in [{float(batch.advantages.min())}, "
                f"{float(batch.advantages.max())}]; the weights stay as they were. Check "
                "advantages and loss, or lower the learning rate"
            )
        for parameter, gradient in zip(self.parameters, gradients, strict=True):
            if norm > options.max_grad_norm:
                gradient.mul_(options.max_grad_norm / norm)
            parameter.grad = gradient
        self.optimizer.step()
        num_tokens = batch.num_tokens
        scale = 1.0 / max(num_tokens, 1.0)
        names = next(part.sums for part in all_parts if part.sums)
        sums = {n: math.fsum(part.sums[n] for part in all_parts if part.sums) for n in names}
        return {
            **{name: total * scale for name, total in sums.items()},
            "num_tokens": num_tokens,
            "loss": loss_value,
            "grad_norm": norm,
        }

    def _gradients(
        self,
        batch: Minibatch,
        loss: Loss,
        options: TrainOptions,
        is_stopped: Callable[[], bool],
    ) -> tuple[list[_Part], float]:
        """Leave the gradient of a minibatch in the network: what all ranks added, and its norm."""
        self.network.zero_gradients()
        parts = []
        for part in batch.parts(options.micro_batch_size):
            if self.ranks.count == 1 and is_stopped():
                raise EngineStoppedError(STOPPED)
            parts.append(self._backward(part, batch, loss, options))
        norm = _norm(self.network.gradients())
        # Ranks compute each part together, so that they can stop between steps only.
        found = self.ranks.gather((parts, norm, is_stopped()))
        if any(is_stopped_there for _, _, is_stopped_there in found):
            raise EngineStoppedError(STOPPED)
        all_parts = [part for of_rank, _, _ in found for part in of_rank]
        _raise_first(all_parts)
        return all_parts, math.hypot(*(norm_of_rank for _, norm_of_rank, _ in found))

    def _backward(
        self, part: Minibatch, whole: Minibatch, loss: Loss, options: TrainOptions
    ) -> _Part:
        """Add the gradient of this rank's share of one part of a minibatch."""
        share = share_of(part.rows, self.ranks)
        mine = part.select(share.members)
        scores = self._score(mine, share.fillers, options)
        if not mine.rows:
            scores.logprobs.sum().backward()  # type: ignore[no-untyped-call]
            return _Part(0.0, {})
        old_BT = scores.logprobs.detach() if mine.old_logprobs is None else mine.old_logprobs
        is_critic = self.network.source.head == HEAD_VALUE
        if options.importance_cap is not None and not is_critic:
            weights_BT = importance_weights(old_BT, mine.rollout_logprobs, options.importance_cap)
            mine = replace(mine, advantages=per_token(mine.advantages) * weights_BT)
        try:
            value = _evaluate(loss, scores.logprobs, old_BT, mine)
        except EngineError as error:
            if self.ranks.count == 1:
                raise
            # The others wait for this rank's part of the sum; all raise once it is complete.
            scores.logprobs.sum().backward()  # type: ignore[no-untyped-call]
            return _Part(0.0, {}, error)
        value = value + _penalty(scores.logprobs, scores.entropy, mine, options)
        if len(mine.rows) != len(whole.rows):
            value = value * part_weight(
                options.aggregation, mine.mask, whole.num_tokens, len(whole.rows)
            )
        value.backward()  # type: ignore[no-untyped-call]
        with torch.no_grad():
            sums = (
                _measure_critic(mine, scores.logprobs)
                if is_critic
                else _measure(mine, scores.logprobs, old_BT, scores.entropy, options)
            )
        return _Part(float(value.detach()), sums)


@dataclass(frozen=True, slots=True)
class _Part:
    """What one rank adds to one part of a minibatch."""

    loss: float
    sums: dict[str, float]
    """Sums over tokens; empty where it had no sample."""
    error: EngineError | None = None
    """What the loss raised."""


def _raise_first(parts: Sequence[_Part]) -> None:
    for part in parts:
        if part.error is not None:
            raise part.error


def _evaluate(
    loss: Loss, logprobs_BT: torch.Tensor, old_BT: torch.Tensor, batch: Minibatch
) -> torch.Tensor:
    name = getattr(loss, "__name__", repr(loss))
    try:
        value = loss(logprobs_BT, old_BT, batch.advantages, batch.mask)
    except RAISED as error:
        raise EngineError(
            f"loss {name} raised {told(error)}; it is called as "
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
    per_token_BT = {
        "entropy": entropy_BT,
        "clip_fraction": clipped(options, logprobs_BT, old_BT, batch.mask),
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


def _norm(gradients: Sequence[torch.Tensor]) -> float:
    """Euclidean norm, by pieces: a float32 sum over millions of elements loses its last ones."""
    pieces = [piece for g in gradients for piece in torch.split(g.view(-1), NORM_PIECE)]
    return float(torch.nn.utils.get_total_norm(pieces))


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
