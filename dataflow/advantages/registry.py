"""Advantage estimators by name, and their application to a batch."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from dataflow.advantages.estimators import (
    Estimator,
    centered,
    grpo,
    grpo_batch,
    reinforce_pp,
    reinforce_pp_baseline,
    rloo,
)
from dataflow.errors import PipelineError, UnknownNameError
from dataflow.plugged import called
from dataflow.samples import Rewards, Sample, group_rows

_ESTIMATORS: dict[str, Estimator] = {
    "centered": centered,
    "grpo": grpo,
    "grpo_batch": grpo_batch,
    "reinforce_pp": reinforce_pp,
    "reinforce_pp_baseline": reinforce_pp_baseline,
    "rloo": rloo,
}


def names() -> tuple[str, ...]:
    """Registered names, sorted."""
    return tuple(sorted(_ESTIMATORS))


def resolve(advantage: str | Estimator) -> Estimator:
    """Estimator of a name; a function is its own.

    Raises
    ------
    UnknownNameError
        Nobody registered the name, or it is none of these.
    """
    if callable(advantage):
        return advantage
    if advantage not in names():
        raise UnknownNameError(
            f"no advantage is called {advantage!r}; known are {', '.join(names())}, or give a "
            "function"
        )
    return _ESTIMATORS[advantage]


def estimate(
    advantage: str | Estimator, rewards: Rewards | Sequence[float], samples: Sequence[Sample]
) -> tuple[float, ...]:
    """Advantages of samples; those of cancelled ones are 0, and the others do not see them.

    Nor has a sample one that is left alone by the cancelled ones of its prompt.

    Parameters
    ----------
    advantage
        Registered name or function.
    rewards
        One per sample.
    samples
        Samples of one iteration.

    Raises
    ------
    PipelineError
        The function did not give one finite number per sample.
    UnknownNameError
        Nobody registered the name.
    """
    estimator = resolve(advantage)
    numbers = rewards.values if isinstance(rewards, Rewards) else tuple(rewards)
    if not any(sample.is_cancelled for sample in samples):
        return _estimate(estimator, numbers, samples)
    rows = _rows_that_teach(samples)
    given = [numbers[row] for row in rows], [samples[row] for row in rows]
    values = dict(zip(rows, _estimate(estimator, *given) if rows else (), strict=True))
    return tuple(values.get(row, 0.0) for row in range(len(samples)))


def _rows_that_teach(samples: Sequence[Sample]) -> list[int]:
    """Rows that nobody ended and that can still be compared."""
    found: list[int] = []
    for rows in group_rows(samples).values():
        left = [row for row in rows if not samples[row].is_cancelled]
        found += left if len(left) > 1 or len(left) == len(rows) else []
    return sorted(found)


def _estimate(
    estimator: Estimator, numbers: Sequence[float], samples: Sequence[Sample]
) -> tuple[float, ...]:
    """What an estimator gives, if it is one finite number per sample."""
    name = getattr(estimator, "__qualname__", type(estimator).__name__)

    def work() -> tuple[float, ...]:
        found: object = estimator(numbers, samples)
        return tuple(map(float, found)) if isinstance(found, Iterable) else ()

    values = called(work, lambda told: PipelineError(f"advantage {name} raised {told}"))
    if len(values) != len(samples) or not all(map(math.isfinite, values)):
        raise PipelineError(
            f"advantage {name} gave {len(values)} values for {len(samples)} samples"
            f"{'' if all(map(math.isfinite, values)) else ', some of them not finite'}; it must "
            "give one finite number per sample"
        )
    return values
