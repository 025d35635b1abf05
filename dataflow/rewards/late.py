"""A judge that answers late, as people and large judge models do."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from dataflow.rewards.protocol import Judge, Verifier
from dataflow.rewards.scoring import score
from dataflow.samples import Rewards, Sample
from dataflow.waiting import LogNormalDelay


@dataclass(frozen=True, slots=True)
class LateJudge:
    """Another judge's rewards after a real wait, drawn per iteration."""

    verifier: str | Verifier | Judge
    """Who decides the rewards."""
    median_s: float
    """Median of the wait in seconds."""
    sigma: float = 0.5
    """Standard deviation of the wait's natural logarithm."""
    seed: int = 0
    wait: Callable[[float], object] = time.sleep
    """Waits that many seconds."""

    def __post_init__(self) -> None:
        _ = self.delay

    @property
    def delay(self) -> LogNormalDelay:
        """Distribution of the wait."""
        return LogNormalDelay(self.median_s, self.sigma, self.seed)

    def judge(self, samples: Sequence[Sample], iteration: int) -> Rewards:
        """Rewards of the samples, with the seconds waited."""
        rewards = score(self.verifier, samples, iteration)
        delay_s = self.delay.draw_s(iteration)
        self.wait(delay_s)
        return replace(rewards, delay_s=rewards.delay_s + delay_s)
