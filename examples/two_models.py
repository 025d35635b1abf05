"""A branch over two models: a frozen reference scores what the actor samples.

The two logprob functions depend on the rollout alone, so they may run in either order, and
another job may run in between. The reward is lowered where the actor leaves its reference
(KL in the reward: arXiv 1909.08593).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import dask

import plexrl
from dataflow import advantages, rewards
from dataflow.datasets import LetterPrompts
from dataflow.jobs import JobSpec, ModelSpec
from dataflow.samples import Rewards

if TYPE_CHECKING:
    from dask.delayed import Delayed

    from dataflow.iteration import Iteration
    from dataflow.samples import Sample

KL_WEIGHT = 0.02
"""Reward lost per nat between actor and reference, mean over tokens."""

Logprobs = Sequence[Sequence[float]]


def with_kl_penalty(
    judged: Rewards, actor: Logprobs, reference: Logprobs, samples: Sequence[Sample]
) -> Rewards:
    """Rewards minus the estimated divergence from the reference model."""
    values = []
    for value, own, other, sample in zip(judged.values, actor, reference, samples, strict=True):
        gaps = [a - b for a, b, drawn in zip(own, other, sample.policy_mask, strict=True) if drawn]
        values.append(value - KL_WEIGHT * sum(gaps) / max(len(gaps), 1))
    return Rewards(tuple(values))


def pipeline(it: Iteration) -> Delayed:
    """Nodes of one iteration."""
    samples = it.actor.generate(it.prompts, n=8, max_new_tokens=8)
    judged = rewards.node("descending", samples)
    own = it.actor.logprobs(samples)
    other = it.reference.logprobs(samples)
    penalised = dask.delayed(with_kl_penalty)(judged, own, other, samples)
    advantage = advantages.node("grpo_batch", penalised, samples)
    return it.actor.train(samples, advantage, rewards=penalised, old_logprobs=own, lr=2e-4)


def job(model_folder: str) -> JobSpec:
    """Forty iterations of the pipeline."""
    return JobSpec(
        name="two-models",
        models={
            "actor": ModelSpec(model_folder),
            "reference": ModelSpec(model_folder, is_trainable=False),
        },
        pipeline=pipeline,
        iterations=40,
        prompts=LetterPrompts(seed=0),
        description="descending, kept near a frozen reference",
    )


def main() -> None:
    with plexrl.LocalCluster(groups=1) as cluster:
        run = cluster.submit(job(plexrl.tiny_base()))
        run.result()
        for row in run.metrics()[::8]:
            print(f"iteration {row['iteration']}: reward {row['reward_mean']:.2f}")


if __name__ == "__main__":
    main()
