"""A tool that answers late, as networks and simulators do."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dataflow.environments.protocol import Environment
from dataflow.samples import Sample
from dataflow.waiting import LogNormalDelay


@dataclass(frozen=True, slots=True)
class LateEnvironment:
    """Another environment's answers after a real wait, drawn per iteration and turn."""

    environment: Environment
    """Who answers."""
    delay: LogNormalDelay
    """Distribution of the wait."""
    wait: Callable[[float], object] = time.sleep
    """Waits that many seconds."""

    def step(self, samples: Sequence[Sample], iteration: int) -> tuple[Sample, ...]:
        """Answers of the other environment; waits only where a sample is active."""
        stepped = self.environment.step(samples, iteration)
        turns = [sample.turn for sample in samples if sample.is_active]
        if turns:
            self.wait(self.delay.draw_s(iteration, max(turns)))
        return stepped
