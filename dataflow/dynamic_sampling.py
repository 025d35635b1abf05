"""Dynamic sampling: prompts that teach nothing are replaced by fresh ones (arXiv 2503.14476).

A prompt whose samples all earn the same reward has group-relative advantages of 0. An iteration
has several rounds of prompts at hand; a round is rolled out only while too few prompts teach
something. All prompts at hand count as consumed, so that the data cursor does not depend on luck.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from dask.delayed import Delayed, delayed

from dataflow import rewards as judges
from dataflow.rewards import Judge, Verifier
from dataflow.rewards.isolated import FAILED_REWARDS
from dataflow.rewards.statistics import are_equal, batch_metrics
from dataflow.samples import Rewards, Sample, group_rows


@dataclass(frozen=True, slots=True)
class Judged:
    """Samples and their rewards."""

    samples: tuple[Sample, ...]
    rewards: Rewards

    @property
    def num_prompts(self) -> int:
        """Different prompts among the samples."""
        return len(group_rows(self.samples))

    def rows(self, rows: Sequence[int]) -> Judged:
        """Some of the samples."""
        given = self.rewards
        chosen = replace(
            given,
            values=tuple(given.values[row] for row in rows),
            reasons=tuple(given.reasons[row] for row in rows) if given.reasons else (),
        )
        return Judged(tuple(self.samples[row] for row in rows), chosen)

    def informative(self) -> Judged:
        """Samples of the prompts whose samples differ in reward."""
        values = self.rewards.values
        groups = group_rows(self.samples).values()
        return self.rows(
            [row for rows in groups if not are_equal(values[r] for r in rows) for row in rows]
        )

    def first(self, num_prompts: int) -> Judged:
        """Samples of the first prompts."""
        groups = list(group_rows(self.samples).values())[:num_prompts]
        return self.rows([row for rows in groups for row in rows])


def judge(reward: str | Verifier | Judge, samples: Sequence[Sample], iteration: int = 0) -> Judged:
    """Samples with their rewards.

    Raises
    ------
    RewardError
        The reward raised, or did not give one finite number per sample.
    """
    return Judged(tuple(samples), judges.score(reward, samples, iteration))


def node(reward: str | Verifier | Judge, samples: Delayed, *, iteration: int, key: str) -> Delayed:
    """Node of the `Judged` of samples."""
    judge_of = judges.resolve(reward)
    judged: Delayed = delayed(judge, pure=False)(judge_of, samples, iteration, dask_key_name=key)
    return judged


def choose(rounds: Sequence[Judged], num_prompts: int) -> Judged:
    """What to train on: the first informative prompts of all rounds.

    Where no prompt is informative it is all of the last round, so that the iteration still
    commits; its group-relative advantages are 0 and the metric ``equal_groups`` is 1.

    Parameters
    ----------
    rounds
        At least one, in the order they were rolled out.
    num_prompts
        How many prompts to train on, at most.
    """
    kept = [found.informative() for found in rounds]
    merged = _merged(kept).first(num_prompts) if any(k.samples for k in kept) else rounds[-1]
    metrics = {
        **_judges_metrics(rounds),
        **dict(batch_metrics(merged.rewards.values, merged.samples)),
        "sampling_rounds": float(len(rounds)),
        "informative_prompts": sum(k.num_prompts for k in kept)
        / sum(found.num_prompts for found in rounds),
    }
    delay_s = sum(found.rewards.delay_s for found in rounds)
    rewards = replace(merged.rewards, delay_s=delay_s, metrics=tuple(metrics.items()))
    return Judged(merged.samples, rewards)


def _judges_metrics(rounds: Sequence[Judged]) -> dict[str, float]:
    """What judges measured, over all rounds: counts add up, means are averaged by samples.

    What `batch_metrics` says of a round is left out: it says the same of what is chosen.
    """
    found: dict[str, list[tuple[float, int]]] = {}
    for judged in rounds:
        of_batch = dict(batch_metrics(judged.rewards.values, judged.samples))
        for name, value in judged.rewards.metrics:
            if name not in of_batch:
                found.setdefault(name, []).append((value, len(judged.samples)))
    return {
        name: math.fsum(value for value, _ in given)
        if name == FAILED_REWARDS
        else math.fsum(value * count for value, count in given)
        / max(sum(count for _, count in given), 1)
        for name, given in found.items()
    }


def _merged(rounds: Sequence[Judged]) -> Judged:
    samples = tuple(sample for found in rounds for sample in found.samples)
    values = tuple(value for found in rounds for value in found.rewards.values)
    reasons = tuple(
        reason for found in rounds for reason in found.rewards.reasons or ("",) * len(found.samples)
    )
    return Judged(samples, Rewards(values, reasons if any(reasons) else ()))
