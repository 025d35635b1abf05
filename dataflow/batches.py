"""What a train function was given, kept aside so that people can look at it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from dataflow.nodes import Scored
from dataflow.samples import Rewards, Sample, table


@dataclass(frozen=True, slots=True)
class Batch:
    """Inputs of one train function, or the nodes of them."""

    samples: object
    advantages: object
    """As `dataflow.models.ModelHandle.train` takes them."""
    rewards: object


def rows(
    samples: Sequence[Sample], advantages: object, rewards: object = None
) -> list[dict[str, object]]:
    """The table of a batch (`dataflow.samples.table`).

    Parameters
    ----------
    samples
        What was trained on.
    advantages
        A `Scored`, or numbers: one per sample, or per sample one for each token.
    rewards
        Rewards or numbers; None: those of the `Scored`, if it is one.
    """
    if isinstance(advantages, Scored):
        rewards = advantages.rewards if rewards is None else rewards
        advantages = advantages.advantages
    if not isinstance(rewards, Rewards) and rewards is not None:
        rewards = _floats(rewards)
    assert isinstance(advantages, Iterable)
    found = [_floats(a) if isinstance(a, (tuple, list)) else float(a) for a in advantages]
    return table(samples, rewards, found)  # type: ignore[arg-type]


def _floats(values: object) -> tuple[float, ...]:
    assert isinstance(values, Iterable)
    return tuple(float(value) for value in values)
