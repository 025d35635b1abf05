"""Advantage estimators: how much better a sample is than the others of its prompt."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from dataflow.errors import PipelineError
from dataflow.samples import Sample, group_rows

Estimator = Callable[[Sequence[float], Sequence[Sample]], Sequence[float]]
"""``estimator(rewards, samples) -> advantages``, one finite number per sample."""


def grpo_batch(rewards: Sequence[float], samples: Sequence[Sample]) -> tuple[float, ...]:
    """(R - mean of the group) / standard deviation of the batch.

    Less noisy than the group's own deviation where groups are small (arXiv 2508.08221).
    """
    centered = _centered(rewards, samples)
    return _divided(centered, np.asarray(rewards, dtype=np.float64))


def grpo(rewards: Sequence[float], samples: Sequence[Sample]) -> tuple[float, ...]:
    """(R - mean) / standard deviation, both of the group (GRPO, arXiv 2402.03300)."""
    values = np.asarray(rewards, dtype=np.float64)
    centered = _centered(rewards, samples)
    advantages = np.zeros_like(values)
    for rows in group_rows(samples).values():
        advantages[rows] = _divided(centered[rows], values[rows])
    return tuple(float(value) for value in advantages)


def centered(rewards: Sequence[float], samples: Sequence[Sample]) -> tuple[float, ...]:
    """R - mean of the group, without a scale (Dr. GRPO, arXiv 2503.20783)."""
    return tuple(float(value) for value in _centered(rewards, samples))


def rloo(rewards: Sequence[float], samples: Sequence[Sample]) -> tuple[float, ...]:
    """R - mean of the *other* samples of the group (RLOO, arXiv 2402.14740).

    Raises
    ------
    PipelineError
        A prompt has a single sample.
    """
    advantages = _centered(rewards, samples)
    for prompt, rows in group_rows(samples).items():
        if len(rows) < 2:
            raise PipelineError(
                f"advantage 'rloo' compares a sample with the others of its prompt, but prompt "
                f"{prompt} has only one; generate with n of at least 2"
            )
        advantages[rows] *= len(rows) / (len(rows) - 1)
    return tuple(float(value) for value in advantages)


def reinforce_pp(rewards: Sequence[float], samples: Sequence[Sample]) -> tuple[float, ...]:
    """(R - mean) / standard deviation, both of the batch (REINFORCE++, arXiv 2501.03262)."""
    del samples
    values = np.asarray(rewards, dtype=np.float64)
    return _divided(values - values.mean(), values)


def reinforce_pp_baseline(rewards: Sequence[float], samples: Sequence[Sample]) -> tuple[float, ...]:
    """R - mean of the group, by its deviation over the batch (REINFORCE++-baseline, ibid.)."""
    centered = _centered(rewards, samples)
    return _divided(centered, centered)


def _centered(rewards: Sequence[float], samples: Sequence[Sample]) -> NDArray[np.float64]:
    """R - mean of the group."""
    values = np.asarray(rewards, dtype=np.float64)
    for rows in group_rows(samples).values():
        values[rows] -= values[rows].mean()
    return values


def _divided(centered_R: NDArray[np.float64], rewards_R: NDArray[np.float64]) -> tuple[float, ...]:
    """Centered rewards by the standard deviation of rewards; 0 where those are all equal."""
    if len(rewards_R) < 2 or np.ptp(rewards_R) == 0:
        return (0.0,) * len(rewards_R)
    return tuple(float(value) for value in centered_R / rewards_R.std(ddof=1))
