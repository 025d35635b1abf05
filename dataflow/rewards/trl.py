"""Reward functions written for TRL's GRPOTrainer, unchanged."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dataflow.errors import RewardError
from dataflow.samples import Rewards, Sample

TrlFunction = Callable[..., Sequence[float | None]]
"""``function(prompts, completions, **columns) -> list of float or None``."""


@dataclass(frozen=True, slots=True)
class TrlReward:
    """Weighted sum of reward functions with TRL's signature.

    Each is called once per iteration with ``prompts`` and ``completions`` (lists of texts),
    ``completion_ids`` and one list for each other column of the data set: ``answer``, where there
    are gold answers, and the fields of ``Prompt.meta``. A function may return None for samples
    it does not judge; a sample that none judges is an error.
    """

    functions: tuple[TrlFunction, ...]
    weights: tuple[float, ...] = ()
    """One per function; 1 each by default."""

    def judge(self, samples: Sequence[Sample], iteration: int) -> Rewards:
        """Rewards of the samples; the mean of each function is a metric."""
        del iteration
        weights = self.weights or (1.0,) * len(self.functions)
        if not self.functions or len(weights) != len(self.functions):
            raise RewardError(
                f"{len(self.functions)} reward functions came with {len(weights)} weights; give at "
                "least one function, and one weight each"
            )
        columns = _columns(samples)
        given = [_called(function, columns, len(samples)) for function in self.functions]
        values = []
        for row, sample in enumerate(samples):
            judged = [(w, g[row]) for w, g in zip(weights, given, strict=True)]
            known = [w * value for w, value in judged if value is not None]
            if not known:
                raise RewardError(
                    f"no reward function judged row {row} (prompt {sample.prompt.index}); at least "
                    "one must return a number for each sample"
                )
            values.append(math.fsum(known))
        metrics = []
        for function, numbers in zip(self.functions, given, strict=True):
            found = [value for value in numbers if value is not None]
            if found:
                metrics.append((f"reward/{_name(function)}", math.fsum(found) / len(found)))
        return Rewards(tuple(values), metrics=tuple(metrics))


def _columns(samples: Sequence[Sample]) -> dict[str, list[object]]:
    """Keyword arguments as TRL passes them."""
    names = sorted({name for sample in samples for name in sample.prompt.meta})
    columns: dict[str, list[object]] = {
        name: [sample.prompt.meta.get(name) for sample in samples] for name in names
    }
    if any(sample.prompt.answer for sample in samples):
        columns["answer"] = [sample.prompt.answer for sample in samples]
    return {
        **columns,
        "prompts": [sample.prompt.text for sample in samples],
        "completions": [sample.text for sample in samples],
        "completion_ids": [list(sample.token_ids) for sample in samples],
    }


def _called(
    function: TrlFunction, columns: dict[str, list[object]], count: int
) -> list[float | None]:
    """What a function returned, one entry per sample."""
    found = list(function(**columns))
    if len(found) != count:
        raise RewardError(
            f"reward {_name(function)} gave {len(found)} values for {count} samples; it must give "
            "one per sample, in their order"
        )
    return [None if value is None else float(value) for value in found]


def _name(function: TrlFunction) -> str:
    return str(getattr(function, "__name__", type(function).__name__))
