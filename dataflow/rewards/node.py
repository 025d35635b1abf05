"""The reward node: an ordinary Dask task that holds no group."""

from __future__ import annotations

from collections.abc import Sequence

from dask.delayed import Delayed, delayed

from dataflow.keys import unique_key
from dataflow.phases import Phase
from dataflow.rewards.protocol import Judge, Verifier
from dataflow.rewards.registry import resolve
from dataflow.rewards.scoring import score
from dataflow.samples import Sample


def node(
    reward: str | Verifier | Judge,
    samples: Delayed | Sequence[Sample],
    *,
    iteration: int = 0,
    key: str | None = None,
) -> Delayed:
    """Node of the `Rewards` of samples.

    Parameters
    ----------
    reward
        Registered name, function of one sample, or judge.
    samples
        Samples, or a node of them.
    iteration
        ``it.index``, for judges that depend on it.
    key
        Key of the node, e.g. ``it.key("reward")``; a unique one otherwise.

    Raises
    ------
    UnknownNameError
        Nobody registered the name. What goes wrong later is a `RewardError` of the node.
    """
    judge = resolve(reward)
    name = unique_key(Phase.REWARD) if key is None else key
    scored: Delayed = delayed(score, pure=False)(judge, samples, iteration, dask_key_name=name)
    return scored
