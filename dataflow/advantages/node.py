"""The advantage node: an ordinary Dask task that holds no group."""

from __future__ import annotations

from collections.abc import Sequence

from dask.delayed import Delayed, delayed

from dataflow.advantages.estimators import Estimator
from dataflow.advantages.registry import estimate, resolve
from dataflow.keys import unique_key
from dataflow.phases import Phase
from dataflow.samples import Rewards, Sample


def node(
    advantage: str | Estimator,
    rewards: Delayed | Rewards | Sequence[float],
    samples: Delayed | Sequence[Sample],
    *,
    key: str | None = None,
) -> Delayed:
    """Node of the advantages of samples, a tuple of floats.

    Parameters
    ----------
    advantage
        Registered name or function of rewards and samples.
    rewards, samples
        Values, or nodes of them.
    key
        Key of the node, e.g. ``it.key("advantage")``; a unique one otherwise.

    Raises
    ------
    UnknownNameError
        Nobody registered the name.
    """
    estimator = resolve(advantage)
    name = unique_key(Phase.ADVANTAGE) if key is None else key
    estimated: Delayed = delayed(estimate, pure=False)(
        estimator, rewards, samples, dask_key_name=name
    )
    return estimated
