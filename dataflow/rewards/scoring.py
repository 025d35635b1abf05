"""Applies a reward to samples and insists on one finite number for each."""

from __future__ import annotations

import math
from collections.abc import Sequence, Sized
from dataclasses import replace

from dataflow.errors import RewardError
from dataflow.plugged import called
from dataflow.rewards.protocol import Judge, Verifier
from dataflow.rewards.registry import resolve
from dataflow.rewards.statistics import batch_metrics
from dataflow.rewards.values import number_of, shown
from dataflow.samples import Rewards, Sample


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
        found: Sequence[object] = _one_each(name, "values", rewards.values, samples)
        if len(rewards.reasons):
            _one_each(name, "reasons", rewards.reasons, samples)
    else:
        rewards = Rewards(())
        found = [_verified(judge, name, row, sample) for row, sample in enumerate(samples)]
    values = tuple(_finite(value, name, row, samples[row]) for row, value in enumerate(found))
    metrics = {**dict(rewards.metrics), **dict(batch_metrics(values, samples))}
    return replace(rewards, values=values, metrics=tuple(metrics.items()))


def name_of(reward: object) -> str:
    """Name of a reward or another plugged-in function, for messages."""
    if isinstance(reward, str):
        return repr(reward)
    return str(getattr(reward, "__qualname__", type(reward).__name__))


def _one_each(
    name: str, what: str, given: Sequence[object], samples: Sequence[Sample]
) -> Sequence[object]:
    """What a judge gave for each sample."""
    if not isinstance(given, Sized):
        raise RewardError(
            f"reward {name} gave {given!r} in place of {what}; it must give one per sample"
        )
    if len(given) != len(samples):
        raise RewardError(
            f"reward {name} gave {len(given)} {what} for {len(samples)} samples; it must give one "
            "per sample, in their order"
        )
    return given


def _finite(value: object, name: str, row: int, sample: Sample) -> float:
    """The reward of one sample as a number."""
    number = number_of(value)
    if number is None or not math.isfinite(number):
        raise RewardError(
            f"reward {name} gave {shown(value)} for {_place(row, sample)}; it must give a "
            "finite number"
        )
    return number


def _verified(verifier: Verifier, name: str, row: int, sample: Sample) -> object:
    """What a function of one sample gave."""
    return called(
        lambda: verifier(sample),
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
