"""Losses by name: pure functions of log-probabilities, advantages and a mask.

A loss takes ``(logprobs_BT, old_logprobs_BT, advantages, mask_BT)`` and returns a scalar
tensor to minimise. Advantages have shape (B,), one per sample, or (B, T), one per token: after
generalised advantage estimation, and where importance weights scale them. It uses tensor
methods only, so this module loads without torch.

Shape letters: B samples, T completion positions.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from dataflow.calls import AUTOCAST_NAMES, Loss, TrainOptions
from plexrl.engines.aggregation import Aggregator, resolve_aggregation, token_mean
from plexrl.engines.penalties import resolve_kl
from plexrl.errors import EngineError

if TYPE_CHECKING:
    from torch import Tensor


def per_token(advantages: Tensor) -> Tensor:
    """Advantages that broadcast over (B, T)."""
    return advantages[:, None] if advantages.dim() == 1 else advantages


def grpo(
    logprobs_BT: Tensor,
    old_logprobs_BT: Tensor,
    advantages: Tensor,
    mask_BT: Tensor,
    *,
    clip_low: float = 0.2,
    clip_high: float = 0.28,
    aggregate: Aggregator = token_mean,
    max_tokens: int | None = None,
) -> Tensor:
    """Clipped policy-gradient loss.

    PPO's clipped surrogate (arXiv 1707.06347) with an asymmetric clip range (clip-higher: DAPO,
    arXiv 2503.14476). With group-relative advantages it is GRPO (arXiv 2402.03300), with those of
    a critic PPO; the aggregation tells GRPO, Dr. GRPO and DAPO apart.
    """
    ratio_BT = (logprobs_BT - old_logprobs_BT).exp()
    clipped_BT = ratio_BT.clamp(1.0 - clip_low, 1.0 + clip_high)
    advantages_BT = per_token(advantages)
    gain_BT = (ratio_BT * advantages_BT).minimum(clipped_BT * advantages_BT)
    return -aggregate(gain_BT, mask_BT, max_tokens)


def gspo(
    logprobs_BT: Tensor,
    old_logprobs_BT: Tensor,
    advantages: Tensor,
    mask_BT: Tensor,
    *,
    clip_low: float = 3e-4,
    clip_high: float = 4e-4,
    aggregate: Aggregator = token_mean,
    max_tokens: int | None = None,
) -> Tensor:
    """GSPO (arXiv 2507.18071, eq. 5-7): ratio and clip of whole samples.

    The ratio is the geometric mean over a sample's tokens, so the clip range is far narrower
    than that of single tokens.
    """
    ratio_B1 = _sample_ratios(logprobs_BT, old_logprobs_BT, mask_BT)
    clipped_B1 = ratio_B1.clamp(1.0 - clip_low, 1.0 + clip_high)
    advantages_BT = per_token(advantages)
    gain_BT = (ratio_B1 * advantages_BT).minimum(clipped_B1 * advantages_BT)
    return -aggregate(gain_BT.expand_as(mask_BT), mask_BT, max_tokens)


def _sample_ratios(logprobs_BT: Tensor, old_logprobs_BT: Tensor, mask_BT: Tensor) -> Tensor:
    """Geometric mean over each sample's tokens of new over old probability, shape (B, 1)."""
    lengths_B = mask_BT.sum(-1).clamp(min=1.0)
    log_ratio_B = ((logprobs_BT - old_logprobs_BT) * mask_BT).sum(-1) / lengths_B
    return log_ratio_B.exp()[:, None]


def clipped(
    options: TrainOptions, logprobs_BT: Tensor, old_logprobs_BT: Tensor, mask_BT: Tensor
) -> Tensor:
    """Where the ratio that a loss clips is out of its range; of shape (B, T) or (B, 1)."""
    if options.loss == "gspo":
        ratio_BT = _sample_ratios(logprobs_BT, old_logprobs_BT, mask_BT)
    else:
        ratio_BT = (logprobs_BT - old_logprobs_BT).exp()
    is_out_BT = (ratio_BT < 1 - options.clip_low) | (ratio_BT > 1 + options.clip_high)
    return is_out_BT & (options.loss != "reinforce")


def cispo(
    logprobs_BT: Tensor,
    old_logprobs_BT: Tensor,
    advantages: Tensor,
    mask_BT: Tensor,
    *,
    clip_low: float = 1.0,
    clip_high: float = 0.28,
    aggregate: Aggregator = token_mean,
    max_tokens: int | None = None,
) -> Tensor:
    """CISPO (MiniMax-M1, arXiv 2506.13585, eq. 4): the weight is clipped, no token is dropped.

    There is no lower bound in the paper's experiments; `clip_low` of 1 says so.
    """
    ratio_BT = (logprobs_BT - old_logprobs_BT).detach().exp()
    weight_BT = ratio_BT.clamp(1.0 - clip_low, 1.0 + clip_high)
    return -aggregate(weight_BT * per_token(advantages) * logprobs_BT, mask_BT, max_tokens)


def reinforce(
    logprobs_BT: Tensor,
    old_logprobs_BT: Tensor,
    advantages: Tensor,
    mask_BT: Tensor,
    *,
    aggregate: Aggregator = token_mean,
    max_tokens: int | None = None,
) -> Tensor:
    """Plain policy gradient (Williams 1992); with leave-one-out advantages RLOO."""
    del old_logprobs_BT
    return -aggregate(logprobs_BT * per_token(advantages), mask_BT, max_tokens)


def value(
    values_BT: Tensor,
    old_values_BT: Tensor,
    returns: Tensor,
    mask_BT: Tensor,
    *,
    clip_low: float = 0.2,
    clip_high: float = 0.2,
    aggregate: Aggregator = token_mean,
    max_tokens: int | None = None,
) -> Tensor:
    """Clipped squared error of a critic, for models with a value head.

    The larger of the errors with and without clipping the new value to the old one's
    neighbourhood, halved (PPO's reference implementation; arXiv 2005.12729, section 3).
    """
    returns_BT = per_token(returns)
    near_BT = old_values_BT + (values_BT - old_values_BT).clamp(-clip_low, clip_high)
    error_BT = ((values_BT - returns_BT) ** 2).maximum((near_BT - returns_BT) ** 2)
    return 0.5 * aggregate(error_BT, mask_BT, max_tokens)


LOSSES: dict[str, Callable[..., Tensor]] = {
    "cispo": cispo,
    "grpo": grpo,
    "gspo": gspo,
    "reinforce": reinforce,
    "value": value,
}
"""Name → loss."""


def resolve_loss(options: TrainOptions) -> Loss:
    """The loss function of a train call, with clip range and aggregation filled in.

    Raises
    ------
    EngineError
        Nobody registered a name among the options.
    """
    check_options(options)
    if callable(options.loss):
        return options.loss
    loss = LOSSES[options.loss]
    settings: dict[str, object] = {
        "aggregate": resolve_aggregation(options.aggregation),
        "max_tokens": options.max_completion_tokens,
    }
    if loss is not reinforce:
        settings |= {"clip_low": options.clip_low, "clip_high": options.clip_high}
    return partial(loss, **settings)


def check_options(options: TrainOptions) -> None:
    """Check, without running anything, that the names in a train call can be resolved.

    Raises
    ------
    EngineError
        One of them cannot.
    """
    check_loss(options.loss)
    resolve_aggregation(options.aggregation)
    resolve_kl(options.kl_estimator)
    if options.autocast not in AUTOCAST_NAMES:
        raise EngineError(
            f"autocast {options.autocast!r} is not known; give 'bfloat16', or leave it out for "
            "float32"
        )


def check_loss(loss: str | Loss) -> None:
    """Check, without running anything, that a loss can be resolved.

    Raises
    ------
    EngineError
        Nobody registered the name.
    """
    if not callable(loss) and loss not in LOSSES:
        raise EngineError(
            f"loss {loss!r} is not known; use one of {sorted(LOSSES)} or give a function "
            "loss(logprobs_BT, old_logprobs_BT, advantages, mask_BT)"
        )
