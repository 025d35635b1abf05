"""A loop whose length depends on the data: prompts are drawn until enough of them teach something.

A prompt whose samples all earn the same reward has no gradient (dynamic sampling: DAPO,
arXiv 2503.14476). The pipeline is a generator function: each ``yield`` computes a node and hands
its value back, so that the number of rollouts can depend on it.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING

import dask

import plexrl
from dataflow import advantages
from dataflow.datasets import LetterPrompts
from dataflow.jobs import JobSpec, ModelSpec
from dataflow.rewards import score
from dataflow.samples import Rewards, Sample, group_rows

if TYPE_CHECKING:
    from dask.delayed import Delayed

    from dataflow.iteration import Iteration

WANTED_PROMPTS = 8
"""Informative prompts to train on; an iteration has more of them at hand."""
PROMPTS_PER_ROLLOUT = 8

Judged = tuple[tuple[Sample, ...], tuple[float, ...]]


def informative(samples: Sequence[Sample]) -> Judged:
    """Samples and rewards of the prompts whose samples differ in reward."""
    values = score("ascending", samples).values
    kept = [
        row
        for rows in group_rows(samples).values()
        if len({values[row] for row in rows}) > 1
        for row in rows
    ]
    return tuple(samples[row] for row in kept), tuple(values[row] for row in kept)


def pipeline(it: Iteration) -> Generator[Delayed, Judged, Delayed]:
    """Nodes of one iteration, rollout by rollout."""
    samples: tuple[Sample, ...] = ()
    values: tuple[float, ...] = ()
    for first in range(0, len(it.prompts), PROMPTS_PER_ROLLOUT):
        prompts = it.prompts[first : first + PROMPTS_PER_ROLLOUT]
        rollout = it.actor.generate(prompts, n=8, max_new_tokens=8)
        more_samples, more_values = yield dask.delayed(informative)(rollout)
        samples, values = samples + more_samples, values + more_values
        if len(group_rows(samples)) >= WANTED_PROMPTS:
            break
    if not samples:
        samples, values = yield dask.delayed(as_they_are)(rollout)
    advantage = advantages.grpo_batch(values, samples)
    return it.actor.train(samples, advantage, rewards=Rewards(values), lr=2e-4)


def as_they_are(samples: Sequence[Sample]) -> Judged:
    """Samples and rewards without a choice, for an iteration that finds nothing to learn."""
    return tuple(samples), score("ascending", samples).values


def job(model_folder: str) -> JobSpec:
    """Forty iterations of the pipeline."""
    return JobSpec(
        name="adaptive-turns",
        models={"actor": ModelSpec(model_folder)},
        pipeline=pipeline,
        iterations=40,
        prompts=LetterPrompts(seed=0),
        num_prompts=32,
        description="ascending, prompts drawn until eight of them are informative",
    )


def main() -> None:
    with plexrl.LocalCluster(groups=1) as cluster:
        run = cluster.submit(job(plexrl.tiny_base()))
        run.result()
        for row in run.metrics()[::8]:
            print(f"iteration {row['iteration']}: reward {row['reward_mean']:.2f}")


if __name__ == "__main__":
    main()
