"""A pipeline of one's own: reward, advantage and loss are plain functions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import plexrl
from dataflow import scoring
from dataflow.datasets import LetterPrompts
from dataflow.jobs import JobSpec, ModelSpec

if TYPE_CHECKING:
    import torch
    from dask.delayed import Delayed

    from dataflow.iteration import Iteration
    from dataflow.samples import Sample


def first_symbol_largest(sample: Sample) -> float:
    """Reward: 1 if the answer begins with the largest digit of the prompt and ends in time."""
    symbols = sample.prompt.meta["symbols"]
    is_right = sample.text[:1] == max(symbols) and len(sample.text) == len(symbols)
    return float(is_right)


def against_batch_mean(rewards: Sequence[float], samples: Sequence[Sample]) -> list[float]:
    """Advantage: reward minus the mean of the whole batch, whatever the prompt."""
    mean = sum(rewards) / len(samples)
    return [reward - mean for reward in rewards]


def policy_gradient(
    logprobs_BT: torch.Tensor,
    old_logprobs_BT: torch.Tensor,
    advantages_B: torch.Tensor,
    mask_BT: torch.Tensor,
) -> torch.Tensor:
    """Loss: importance-weighted policy gradient, without clipping; B samples, T tokens."""
    ratio_BT = (logprobs_BT - old_logprobs_BT).exp()
    return -(ratio_BT * advantages_B[:, None] * mask_BT).sum() / mask_BT.sum()


def pipeline(it: Iteration) -> Delayed:
    """Nodes of one iteration."""
    samples = it.actor.generate(it.prompts, n=8, max_new_tokens=8)
    scored = scoring.node(first_symbol_largest, against_batch_mean, samples)
    return it.actor.train(samples, scored, loss=policy_gradient, lr=2e-4)


def job(model_folder: str) -> JobSpec:
    """Forty iterations of the pipeline."""
    return JobSpec(
        name="own-loss",
        models={"actor": ModelSpec(model_folder)},
        pipeline=pipeline,
        iterations=40,
        prompts=LetterPrompts(seed=0),
        description="largest digit first, verified by a function of one's own",
    )


def main() -> None:
    with plexrl.LocalCluster(groups=1) as cluster:
        run = cluster.submit(job(plexrl.tiny_base()))
        run.result()
        for row in run.metrics()[::8]:
            print(f"iteration {row['iteration']}: reward {row['reward_mean']:.2f}")


if __name__ == "__main__":
    main()
