"""What the warm-up of the tiny base depends on; light enough to be read without torch."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, field, replace

from plexrl.engines.demonstrations import Mixture


@dataclass(frozen=True, slots=True)
class WarmupSettings:
    """Everything the warmed-up weights are a function of."""

    seed: int = 0
    num_steps: int = 250
    batch_size: int = 96
    """Demonstrations per step."""
    learning_rate: float = 2e-3
    """At its highest; a short linear rise, then a cosine to zero."""
    num_rise_steps: int = 10
    mixture: Mixture = field(default_factory=Mixture)

    def to_json(self) -> str:
        """Canonical JSON text."""
        return json.dumps(asdict(self), sort_keys=True)

    @staticmethod
    def from_json(text: str) -> WarmupSettings:
        """Inverse of `to_json`."""
        data = json.loads(text)
        return WarmupSettings(**{**data, "mixture": Mixture(**data["mixture"])})

    def with_seed(self, seed: int) -> WarmupSettings:
        """These settings with another seed."""
        return replace(self, seed=seed)

    def learning_rate_at(self, step: int) -> float:
        """Learning rate of a step, from 0."""
        rise = min(1.0, (step + 1) / self.num_rise_steps)
        return self.learning_rate * rise * 0.5 * (1 + math.cos(math.pi * step / self.num_steps))
