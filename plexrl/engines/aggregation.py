"""From one number per token to one number: the ways papers average over tokens and samples.

Which mean is taken decides how much a long sample counts beside a short one.

Shape letters: B samples, T completion positions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from plexrl.errors import EngineError
from plexrl.spelling import hint

if TYPE_CHECKING:
    from torch import Tensor

TOKEN_MEAN = "token_mean"  # noqa: S105 (no password)
"""Name of the default: every token counts the same."""

Aggregator = Callable[["Tensor", "Tensor", int | None], "Tensor"]
"""``aggregator(values_BT, mask_BT, max_tokens) -> scalar``."""


def token_mean(values_BT: Tensor, mask_BT: Tensor, max_tokens: int | None = None) -> Tensor:
    """Mean over all tokens of all samples (DAPO, arXiv 2503.14476, section 3.3)."""
    del max_tokens
    return (values_BT * mask_BT).sum() / mask_BT.sum().clamp(min=1.0)


def sequence_mean(values_BT: Tensor, mask_BT: Tensor, max_tokens: int | None = None) -> Tensor:
    """Mean over samples of the mean over a sample's tokens (GRPO, arXiv 2402.03300, eq. 3)."""
    del max_tokens
    lengths_B = mask_BT.sum(-1).clamp(min=1.0)
    return ((values_BT * mask_BT).sum(-1) / lengths_B).mean()


def sequence_sum(values_BT: Tensor, mask_BT: Tensor, max_tokens: int | None = None) -> Tensor:
    """Mean over samples of the sum over a sample's tokens (RLOO, arXiv 2402.14740)."""
    del max_tokens
    return (values_BT * mask_BT).sum(-1).mean()


def fixed_length(values_BT: Tensor, mask_BT: Tensor, max_tokens: int | None = None) -> Tensor:
    """Sum over a sample's tokens by a constant length (Dr. GRPO, arXiv 2503.20783, section 3).

    Parameters
    ----------
    values_BT, mask_BT
        One number per token, and 1 where it counts.
    max_tokens
        The constant; T where it is None.
    """
    length = values_BT.shape[-1] if max_tokens is None else max_tokens
    return sequence_sum(values_BT, mask_BT) / length


AGGREGATIONS: dict[str, Aggregator] = {
    TOKEN_MEAN: token_mean,
    "sequence_mean": sequence_mean,
    "sequence_sum": sequence_sum,
    "fixed_length": fixed_length,
}
"""Name → aggregator."""


def resolve_aggregation(name: str) -> Aggregator:
    """Aggregator of a name.

    Raises
    ------
    EngineError
        There is none.
    """
    if name not in AGGREGATIONS:
        raise EngineError(f"aggregation {name!r} is not known; {hint(name, AGGREGATIONS)}")
    return AGGREGATIONS[name]


def part_weight(name: str, part_mask_BT: Tensor, num_tokens: float, num_samples: int) -> float:
    """Weight of a part of a batch, so that weighted values of the parts add up to the whole's.

    Parameters
    ----------
    name
        Aggregation.
    part_mask_BT
        Mask of the part.
    num_tokens, num_samples
        Of the whole batch.
    """
    if name == TOKEN_MEAN:
        return float(part_mask_BT.sum()) / max(num_tokens, 1.0)
    return part_mask_BT.shape[0] / num_samples
