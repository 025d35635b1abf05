"""A penalty for answers that come near the token limit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from dataflow.errors import DataError
from dataflow.rewards.protocol import Judge, Verifier
from dataflow.rewards.scoring import score
from dataflow.samples import Rewards, Sample


@dataclass(frozen=True, slots=True)
class OverlongPenalty:
    """Another judge's rewards, less up to 1 for length (DAPO, arXiv 2503.14476, eq. 13)."""

    reward: str | Verifier | Judge
    """Who decides the rewards."""
    max_tokens: int
    """Tokens at which the penalty reaches 1: the limit of the rollout."""
    buffer_tokens: int
    """Tokens before it over which the penalty grows from 0."""

    def __post_init__(self) -> None:
        if not 1 <= self.buffer_tokens <= self.max_tokens:
            raise DataError(
                f"an overlong penalty over the last {self.buffer_tokens} of {self.max_tokens} "
                "tokens cannot be; give a buffer from 1 to the limit"
            )

    def judge(self, samples: Sequence[Sample], iteration: int) -> Rewards:
        """Rewards of the samples, with the mean penalty as a metric."""
        rewards = score(self.reward, samples, iteration)
        penalties = [self.penalty(sum(sample.policy_mask)) for sample in samples]
        values = tuple(v - p for v, p in zip(rewards.values, penalties, strict=True))
        mean = sum(penalties) / max(len(penalties), 1)
        return replace(
            rewards, values=values, metrics=(*rewards.metrics, ("overlong_penalty", mean))
        )

    def penalty(self, num_tokens: int) -> float:
        """Between 0 and 1, for a sample with that many drawn tokens."""
        begin = self.max_tokens - self.buffer_tokens
        return min(max((num_tokens - begin) / self.buffer_tokens, 0.0), 1.0)
