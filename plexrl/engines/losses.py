"""Losses by name: pure functions of log-probabilities, advantages and a mask.

A loss takes ``(logprobs_BT, old_logprobs_BT, advantages_B, mask_BT)`` and returns a scalar
tensor to minimise. It uses tensor methods only, so this module loads without torch.

Shape letters: B samples, T completion positions.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from dataflow.calls import Loss, TrainOptions
from plexrl.errors import EngineError

if TYPE_CHECKING:
    from torch import Tensor


def grpo(
    logprobs_BT: Tensor,
    old_logprobs_BT: Tensor,
    advantages_B: Tensor,
    mask_BT: Tensor,
    *,
    clip_low: float = 0.2,
    clip_high: float = 0.28,
) -> Tensor:
    """Clipped policy-gradient loss, mean over all policy tokens.

    PPO's clipped surrogate (arXiv 1707.06347) with group-relative advantages (arXiv
    2402.03300), asymmetric clip range and token-level mean (arXiv 2503.14476).
    """
    ratio_BT = (logprobs_BT - old_logprobs_BT).exp()
    clipped_BT = ratio_BT.clamp(1.0 - clip_low, 1.0 + clip_high)
    advantages_B1 = advantages_B[:, None]
    gain_BT = (ratio_BT * advantages_B1).minimum(clipped_BT * advantages_B1)
    return -_token_mean(gain_BT, mask_BT)


def reinforce(
    logprobs_BT: Tensor, old_logprobs_BT: Tensor, advantages_B: Tensor, mask_BT: Tensor
) -> Tensor:
    """Plain policy gradient (Williams 1992), mean over all policy tokens."""
    del old_logprobs_BT
    return -_token_mean(logprobs_BT * advantages_B[:, None], mask_BT)


LOSSES: dict[str, Callable[..., Tensor]] = {"grpo": grpo, "reinforce": reinforce}
"""Name → loss."""


def resolve_loss(options: TrainOptions) -> Loss:
    """The loss function of a train call, with its clip range filled in.

    Raises
    ------
    EngineError
        Nobody registered the name.
    """
    if callable(options.loss):
        return options.loss
    check_loss(options.loss)
    loss = LOSSES[options.loss]
    if loss is grpo:
        return partial(grpo, clip_low=options.clip_low, clip_high=options.clip_high)
    return loss


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
            "loss(logprobs_BT, old_logprobs_BT, advantages_B, mask_BT)"
        )


def _token_mean(values_BT: Tensor, mask_BT: Tensor) -> Tensor:
    return (values_BT * mask_BT).sum() / mask_BT.sum().clamp(min=1.0)
