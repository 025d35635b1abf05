"""Waits whose length is drawn, so that late judges and slow tools can be reproduced."""

from __future__ import annotations

import math
from dataclasses import dataclass

from numpy.random import Generator, Philox

from dataflow.errors import DataError
from dataflow.keys import draw_key, stream_seed


@dataclass(frozen=True, slots=True)
class LogNormalDelay:
    """Delays with a log-normal distribution, a function of seed and place in the run."""

    median_s: float
    """Median in seconds."""
    sigma: float
    """Standard deviation of the delay's natural logarithm; 0 makes it constant."""
    seed: int = 0

    def __post_init__(self) -> None:
        if not math.isfinite(self.median_s) or self.median_s < 0:
            raise DataError(f"a delay's median_s is {self.median_s}; give seconds, at least 0")
        if not math.isfinite(self.sigma) or self.sigma < 0:
            raise DataError(f"a delay's sigma is {self.sigma}; give a number, at least 0")

    @property
    def mean_s(self) -> float:
        """Mean in seconds."""
        return self.median_s * math.exp(self.sigma**2 / 2)

    def draw_s(self, iteration: int, turn: int = 0) -> float:
        """Delay in seconds at one place of the run."""
        key = draw_key(stream_seed(self.seed, "delay"), iteration, 0, 0, turn)
        normal = float(Generator(Philox(key=key)).standard_normal())
        return self.median_s * math.exp(self.sigma * normal)

    def __str__(self) -> str:
        return f"log-normal, median {self.median_s:g} s, sigma {self.sigma:g}"
