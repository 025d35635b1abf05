"""Advantage estimators: how much better a sample is than the others of its prompt."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from dataflow.errors import PipelineError
from dataflow.rewards.statistics import are_equal
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
    """(R - mean) / standard deviation over the batch's tokens (REINFORCE++, arXiv 2501.03262).

    Every token has the reward of its sample, so a sample counts by the tokens the policy drew.
    """
    return _whitened(np.asarray(rewards, dtype=np.float64), samples)


def reinforce_pp_baseline(rewards: Sequence[float], samples: Sequence[Sample]) -> tuple[float, ...]:
    """The same of R - mean of the group (REINFORCE++-baseline, ibid.)."""
    return _whitened(_centered(rewards, samples), samples)


def _centered(rewards: Sequence[float], samples: Sequence[Sample]) -> NDArray[np.float64]:
    """R - mean of the group; 0 in a group of equals."""
    values = np.asarray(rewards, dtype=np.float64)
    for rows in group_rows(samples).values():
        of_group = values[rows]
        values[rows] = 0.0 if are_equal(of_group.tolist()) else of_group - of_group.mean()
    return values


def _divided(centered_R: NDArray[np.float64], rewards_R: NDArray[np.float64]) -> tuple[float, ...]:
    """Centered rewards by the standard deviation of rewards; 0 where those are all equal."""
    if are_equal(rewards_R.tolist()):
        return (0.0,) * len(rewards_R)
    return tuple(float(value) for value in centered_R / rewards_R.std(ddof=1))


def _whitened(values_R: NDArray[np.float64], samples: Sequence[Sample]) -> tuple[float, ...]:
    """Mean 0 and deviation 1 over the tokens the policy drew; 0 where all are equal."""
    num_tokens_R = np.array([sum(sample.policy_mask) for sample in samples], dtype=np.float64)
    drawn_R = values_R[num_tokens_R > 0]
    if are_equal(drawn_R.tolist()):
        return (0.0,) * len(values_R)
    total = num_tokens_R.sum()
    centered_R = values_R - (values_R * num_tokens_R).sum() / total
    variance = (centered_R**2 * num_tokens_R).sum() / (total - 1)
    return tuple(float(value) for value in centered_R / np.sqrt(variance))
