"""Rewards that an untrained network can earn, so that every job of a test really learns.

And one that waits for the test, so that no job is over before what is to happen to it.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from dataflow.samples import Sample

WAIT_S = 120.0
"""Seconds after which a gate that nobody opens fails its job."""


@dataclass(frozen=True)
class Share:
    """Share of the drawn characters that are among `characters`."""

    characters: str

    def __call__(self, sample: Sample) -> float:
        return sum(c in self.characters for c in sample.text) / max(1, len(sample.text))


DIGITS = Share("0123456789")
CAPITALS = Share("ABCDEFGHIJKLMNOPQRSTUVWXYZ")
SMALL = Share("abcdefghijklmnopqrstuvwxyz")


@dataclass(frozen=True)
class Gate:
    """Rewards by a verifier; from a prompt on only once the test has opened the gate."""

    verifier: Callable[[Sample], float]
    path: Path
    first: int
    """Index of that prompt: iterations before it run freely."""

    def __call__(self, sample: Sample) -> float:
        deadline_s = time.monotonic() + WAIT_S
        while sample.prompt.index >= self.first and not self.path.exists():
            if time.monotonic() > deadline_s:
                raise TimeoutError(f"nobody opened {self.path}")
            time.sleep(0.005)
        return self.verifier(sample)

    def open(self) -> None:
        """Let the job go on."""
        self.path.touch()
