"""Rewards that an untrained network can earn, so that every job of a test really learns."""

from dataclasses import dataclass

from dataflow.samples import Sample


@dataclass(frozen=True)
class Share:
    """Share of the drawn characters that are among `characters`."""

    characters: str

    def __call__(self, sample: Sample) -> float:
        return sum(c in self.characters for c in sample.text) / max(1, len(sample.text))


DIGITS = Share("0123456789")
CAPITALS = Share("ABCDEFGHIJKLMNOPQRSTUVWXYZ")
SMALL = Share("abcdefghijklmnopqrstuvwxyz")
