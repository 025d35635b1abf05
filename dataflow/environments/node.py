"""The tool node: an ordinary Dask task between two turns; no lease is held meanwhile."""

from __future__ import annotations

from collections.abc import Sequence

from dask.delayed import Delayed, delayed

from dataflow.environments.protocol import Environment
from dataflow.errors import PipelineError, ToolError
from dataflow.keys import unique_key
from dataflow.plugged import called
from dataflow.sample_batch import SampleBatch
from dataflow.samples import Sample


def step(environment: Environment, samples: Sequence[Sample], iteration: int = 0) -> SampleBatch:
    """Samples after the environment's answers.

    Raises
    ------
    ToolError
        The environment raised, or did not give back the samples it was given.
    """
    name = type(environment).__qualname__
    stepped = called(
        lambda: tuple(environment.step(samples, iteration)),
        lambda told: ToolError(f"environment {name}, in iteration {iteration}, raised {told}"),
    )
    places = [(s.prompt.index, s.sample_index) for s in samples]
    if [(s.prompt.index, s.sample_index) for s in stepped] != places:
        raise ToolError(
            f"environment {name} gave back {len(stepped)} samples for {len(samples)}, or others "
            "than it was given; it must return every sample, in order"
        )
    return SampleBatch(stepped)


def node(
    environment: Environment,
    samples: Delayed | Sequence[Sample],
    *,
    iteration: int = 0,
    key: str | None = None,
) -> Delayed:
    """Node of the samples after one step of an environment.

    Parameters
    ----------
    environment
        Who answers.
    samples
        Samples, or a node of them.
    iteration
        ``it.index``, for environments that depend on it.
    key
        Key of the node, e.g. ``it.key("tool", turn=0)``; a unique one otherwise.

    Raises
    ------
    PipelineError
        The environment has no method ``step``.
    """
    if not isinstance(environment, Environment):
        raise PipelineError(
            f"environment {environment!r} is {type(environment).__name__}, which has no method "
            "step(samples, iteration); give one of dataflow.environments or one of your own"
        )
    name = unique_key("tool") if key is None else key
    stepped: Delayed = delayed(step, pure=False)(
        environment, samples, iteration, dask_key_name=name
    )
    return stepped
