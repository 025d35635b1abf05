"""Episodes: a rollout with all its tool turns, for training and for evaluation alike."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from dask.delayed import Delayed

from dataflow import environments
from dataflow.environments import Environment
from dataflow.iteration import Iteration
from dataflow.models import ModelHandle
from dataflow.samples import Prompt


class EpisodeSettings(Protocol):
    """What an episode is made of."""

    @property
    def environment(self) -> Environment | None:
        """Who answers between turns; None for single-turn episodes."""
        ...

    @property
    def num_tool_turns(self) -> int:
        """Turns after the first, each after one step of the environment."""
        ...

    @property
    def num_samples(self) -> int:
        """Samples per prompt."""
        ...

    @property
    def max_new_tokens(self) -> int:
        """Limit of tokens per turn."""
        ...

    @property
    def temperature(self) -> float:
        """Softmax temperature."""
        ...

    @property
    def stop(self) -> tuple[str, ...]:
        """Texts that end a turn."""
        ...

    @property
    def top_p(self) -> float:
        """As in `dataflow.calls.GenerateOptions`."""
        ...

    @property
    def top_k(self) -> int:
        """As in `dataflow.calls.GenerateOptions`."""
        ...


def episodes(
    it: Iteration,
    prompts: Sequence[Prompt],
    settings: EpisodeSettings,
    *,
    model: str = "actor",
    round_index: int = 0,
) -> Delayed:
    """Node of the samples of prompts, all turns done.

    Parameters
    ----------
    it
        The iteration.
    prompts
        What to ask.
    settings
        How.
    model
        Who answers.
    round_index
        Tells the tool turns of several rollouts of one iteration apart.
    """
    handle = it.models[model]
    samples = _generate(handle, prompts, settings)
    if settings.environment is not None:
        for turn in range(settings.num_tool_turns):
            key = it.key("tool", turn=round_index * settings.num_tool_turns + turn)
            answered = environments.node(settings.environment, samples, iteration=it.index, key=key)
            samples = _generate(handle, answered, settings)
    return samples


def _generate(
    handle: ModelHandle, inputs: Sequence[Prompt] | Delayed, settings: EpisodeSettings
) -> Delayed:
    """One rollout turn."""
    return handle.generate(
        inputs,
        n=settings.num_samples,
        max_new_tokens=settings.max_new_tokens,
        temperature=settings.temperature,
        stop=settings.stop,
        top_p=settings.top_p,
        top_k=settings.top_k,
    )
