"""Advantages per token from a critic: generalised advantage estimation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from dask.delayed import Delayed, delayed

from dataflow.errors import PipelineError
from dataflow.rewards.statistics import are_equal
from dataflow.samples import Rewards, Sample, teaching

PerToken = tuple[tuple[float, ...], ...]


@dataclass(frozen=True, slots=True)
class Estimated:
    """What a critic's values and the rewards of a batch give."""

    advantages: PerToken
    """Per sample one number for each completion token, for the actor."""
    returns: PerToken
    """Per sample one number for each completion token, for the critic."""


def gae(
    rewards: Rewards | Sequence[float],
    values: Sequence[Sequence[float]],
    samples: Sequence[Sample],
    *,
    discount: float = 1.0,
    gae_lambda: float = 0.95,
) -> Estimated:
    """Generalised advantage estimation (arXiv 1506.02438, eq. 16), normalised over the batch.

    The reward of a sample comes with its last token that the policy drew; tokens an environment
    added are no steps: they are skipped, and have advantage and return 0, as all of a cancelled
    sample do.

    Parameters
    ----------
    rewards
        One per sample.
    values
        A critic's estimates before each completion token.
    samples
        Samples of one iteration.
    discount, gae_lambda
        γ and λ, each in [0, 1].

    Raises
    ------
    PipelineError
        Rewards, values and samples do not match.
    """
    numbers = rewards.values if isinstance(rewards, Rewards) else tuple(rewards)
    if len(numbers) != len(samples) or [len(v) for v in values] != [
        len(sample.token_ids) for sample in samples
    ]:
        raise PipelineError(
            f"gae got {len(numbers)} rewards and values of {len(values)} samples for "
            f"{len(samples)} samples; give one reward per sample and one value per completion "
            "token, as critic.values(samples) returns them"
        )
    samples = teaching(samples)
    advantages: list[list[float]] = []
    returns: list[list[float]] = []
    for reward, of_sample, sample in zip(numbers, values, samples, strict=True):
        row, later, next_value = [0.0] * len(of_sample), 0.0, 0.0
        arrived = reward
        for step in reversed([i for i, drawn in enumerate(sample.policy_mask) if drawn]):
            surprise = arrived + discount * next_value - of_sample[step]
            later = surprise + discount * gae_lambda * later
            row[step], next_value, arrived = later, of_sample[step], 0.0
        advantages.append(row)
        returns.append(
            [
                (a + v) if drawn else 0.0
                for a, v, drawn in zip(row, of_sample, sample.policy_mask, strict=True)
            ]
        )
    return Estimated(_normalised(advantages, samples), tuple(map(tuple, returns)))


def gae_node(
    rewards: Delayed,
    values: Delayed,
    samples: Delayed,
    *,
    discount: float,
    gae_lambda: float,
    key: str,
) -> Delayed:
    """Node of the `Estimated` of samples."""
    node: Delayed = delayed(gae, pure=False)(
        rewards, values, samples, discount=discount, gae_lambda=gae_lambda, dask_key_name=key
    )
    return node


def _normalised(rows: Sequence[Sequence[float]], samples: Sequence[Sample]) -> PerToken:
    """Mean 0 and deviation 1 over the tokens the policy drew; as they are if all are equal."""
    drawn = np.array(
        [
            value
            for row, sample in zip(rows, samples, strict=True)
            for value, is_drawn in zip(row, sample.policy_mask, strict=True)
            if is_drawn
        ]
    )
    if are_equal(drawn.tolist()):
        return tuple(map(tuple, rows))
    mean, deviation = float(drawn.mean()), float(drawn.std(ddof=1))
    return tuple(
        tuple(
            (value - mean) / deviation if is_drawn else 0.0
            for value, is_drawn in zip(row, sample.policy_mask, strict=True)
        )
        for row, sample in zip(rows, samples, strict=True)
    )
