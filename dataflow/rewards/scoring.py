"""Applies a reward to samples and insists on one finite number for each."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from reprlib import Repr

from dataflow.errors import RewardError
from dataflow.plugged import called
from dataflow.rewards.protocol import Judge, Verifier
from dataflow.rewards.registry import resolve
from dataflow.rewards.statistics import batch_metrics
from dataflow.samples import Rewards, Sample

_SHORT = Repr()
_SHORT.maxstring = 400


def score(reward: str | Verifier | Judge, samples: Sequence[Sample], iteration: int = 0) -> Rewards:
    """Rewards of samples.

    Parameters
    ----------
    reward
        Registered name, function of one sample, or judge.
    samples
        Samples of one iteration.
    iteration
        Number of the iteration, for judges that depend on it.

    Raises
    ------
    RewardError
        The reward raised, or did not give one finite number per sample.
    UnknownNameError
        Nobody registered the name.
    """
    name = name_of(reward)
    judge = resolve(reward)
    if isinstance(judge, Judge):
        rewards = _judged(judge, name, samples, iteration)
    else:
        rewards = Rewards(tuple(_verified(judge, name, row, s) for row, s in enumerate(samples)))
    if len(rewards.values) != len(samples):
        raise RewardError(
            f"reward {name} gave {len(rewards.values)} values for {len(samples)} samples; it must "
            "give one per sample, in their order"
        )
    for row, value in enumerate(rewards.values):
        if not isinstance(value, (int, float)) or not math.isfinite(value):
            raise RewardError(
                f"reward {name} gave {value!r} for {_place(row, samples[row])}; it must give a "
                "finite number"
            )
    metrics = {**dict(rewards.metrics), **dict(batch_metrics(rewards.values, samples))}
    return replace(rewards, metrics=tuple(metrics.items()))


def name_of(reward: object) -> str:
    """Name of a reward or another plugged-in function, for messages."""
    if isinstance(reward, str):
        return repr(reward)
    return str(getattr(reward, "__qualname__", type(reward).__name__))


def _verified(verifier: Verifier, name: str, row: int, sample: Sample) -> float:
    """Reward of one sample."""
    return called(
        lambda: float(verifier(sample)),
        lambda told: RewardError(f"reward {name}, on {_place(row, sample)}, raised {told}"),
        passing=(),
    )


def _judged(judge: Judge, name: str, samples: Sequence[Sample], iteration: int) -> Rewards:
    """Rewards of a judge."""
    rewards: object = called(
        lambda: judge.judge(samples, iteration),
        lambda told: RewardError(f"reward {name}, in iteration {iteration}, raised {told}"),
    )
    if not isinstance(rewards, Rewards):
        raise RewardError(
            f"reward {name} returned {type(rewards).__name__}; a judge returns "
            "dataflow.samples.Rewards"
        )
    return rewards


def _place(row: int, sample: Sample) -> str:
    """Which sample, in words."""
    prompt = sample.prompt
    return (
        f"row {row} (prompt {prompt.index} {shown(prompt.text)}, sample {sample.sample_index}, "
        f"completion {shown(sample.text)})"
    )


def shown(text: str) -> str:
    """A text in quotes, its middle left out where it is long, for messages."""
    return _SHORT.repr(text)
