"""What is added to a policy loss: distance to a reference, and weights for a stale rollout.

Shape letters: B samples, T completion positions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from plexrl.errors import EngineError
from plexrl.spelling import hint

if TYPE_CHECKING:
    from torch import Tensor


def kl_k1(logprobs_BT: Tensor, reference_BT: Tensor) -> Tensor:
    """Difference log p - log q: unbiased, of high variance.

    Schulman 2020, "Approximating KL divergence". As a term of a loss its expected gradient is
    zero; take k2 or k3 there.
    """
    return logprobs_BT - reference_BT


def kl_k2(logprobs_BT: Tensor, reference_BT: Tensor) -> Tensor:
    """(log p - log q)² / 2: biased, of low variance, and the right gradient on policy.

    Schulman 2020; its gradient: arXiv 2510.01555.
    """
    difference_BT = logprobs_BT - reference_BT
    return 0.5 * difference_BT * difference_BT


def kl_k3(logprobs_BT: Tensor, reference_BT: Tensor) -> Tensor:
    """q/p - 1 - log(q/p): unbiased and never negative (Schulman 2020; GRPO, arXiv 2402.03300)."""
    log_ratio_BT = reference_BT - logprobs_BT
    return log_ratio_BT.exp() - log_ratio_BT - 1.0


KL_ESTIMATORS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "k1": kl_k1,
    "k2": kl_k2,
    "k3": kl_k3,
}
"""Name → per-token estimate of KL(policy ‖ reference), in nats."""


def resolve_kl(name: str) -> Callable[[Tensor, Tensor], Tensor]:
    """KL estimator of a name.

    Raises
    ------
    EngineError
        There is none.
    """
    if name not in KL_ESTIMATORS:
        raise EngineError(f"kl_estimator {name!r} is not known; {hint(name, KL_ESTIMATORS)}")
    return KL_ESTIMATORS[name]


def importance_weights(old_BT: Tensor, rollout_BT: Tensor, cap: float) -> Tensor:
    """min(π_old / π_rollout, cap), without gradient.

    Truncated importance sampling (Ionides 2008) corrects for an engine that samples with other
    numerics than training has (Yao et al. 2025, "Your efficient RL framework secretly brings you
    off-policy RL training"), and for a rollout by an older version: then π_old is the proximal
    policy of decoupled PPO (AReaL, arXiv 2505.24298).

    Parameters
    ----------
    old_BT
        Log-probabilities by the training forward before the first step, in nats.
    rollout_BT
        Log-probabilities the tokens were drawn with, in nats.
    cap
        Largest weight.
    """
    return (old_BT - rollout_BT).detach().exp().clamp(max=cap)
