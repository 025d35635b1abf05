"""Reward functions written for verl, unchanged."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeGuard

from dataflow.rewards.signatures import parameters_of
from dataflow.samples import Sample

VerlFunction = Callable[..., Any]
"""``compute_score(data_source, solution_str, ground_truth, extra_info) -> number or dict``."""


@dataclass(frozen=True, slots=True)
class VerlReward:
    """Judges a sample by a ``compute_score`` with verl's signature.

    It is called by name, with the columns ``data_source`` and ``extra_info`` of the data set, and
    with ``reward_model["ground_truth"]`` where there is such a column, else with the gold answer.
    Of a dict that it returns the ``score`` counts.
    """

    function: VerlFunction

    def __call__(self, sample: Sample) -> float:
        """Reward of one sample."""
        facts = sample.prompt.meta
        kept = facts.get("reward_model")
        gold = kept.get("ground_truth") if isinstance(kept, Mapping) else sample.prompt.answer
        found: Any = self.function(
            data_source=facts.get("data_source", ""),
            solution_str=sample.text,
            ground_truth=gold,
            extra_info=facts.get("extra_info"),
        )
        return found["score"] if isinstance(found, Mapping) else found  # type: ignore[no-any-return]


def is_verl(function: object) -> TypeGuard[VerlFunction]:
    """Whether a function wants what reward functions of verl do."""
    return {"solution_str", "ground_truth"} <= parameters_of(function)
