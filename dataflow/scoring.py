"""Reward and advantage in one node, for pipelines where nothing else needs the rewards first."""

from __future__ import annotations

from collections.abc import Sequence

from dask.delayed import Delayed, delayed

from dataflow import advantages, rewards
from dataflow.advantages import Estimator
from dataflow.keys import unique_key
from dataflow.nodes import Scored
from dataflow.phases import Phase
from dataflow.rewards import Judge, Verifier
from dataflow.samples import Sample


def score(
    reward: str | Verifier | Judge,
    advantage: str | Estimator,
    samples: Sequence[Sample],
    iteration: int = 0,
) -> Scored:
    """Rewards and advantages of samples.

    Raises
    ------
    RewardError
        The reward raised, or did not give one finite number per sample.
    PipelineError
        The advantage did not give one finite number per sample.
    """
    judged = rewards.score(reward, samples, iteration)
    return Scored(judged, advantages.estimate(advantage, judged, samples))


def node(
    reward: str | Verifier | Judge,
    advantage: str | Estimator,
    samples: Delayed | Sequence[Sample],
    *,
    iteration: int = 0,
    key: str | None = None,
) -> Delayed:
    """Node of the `Scored` of samples; give it to ``train`` as the advantages.

    Raises
    ------
    UnknownNameError
        Nobody registered a name.
    """
    judge = rewards.resolve(reward)
    estimator = advantages.resolve(advantage)
    name = unique_key(Phase.REWARD) if key is None else key
    scored: Delayed = delayed(score, pure=False)(
        judge, estimator, samples, iteration, dask_key_name=name
    )
    return scored
