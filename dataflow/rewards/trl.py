"""Reward functions written for TRL's GRPOTrainer, unchanged."""

from __future__ import annotations

import asyncio
import inspect
import math
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeGuard

from dataflow.errors import DataError, RewardError
from dataflow.plugged import RAISED, called, told
from dataflow.rewards.signatures import parameters_of
from dataflow.rewards.values import number_of, shown
from dataflow.samples import Rewards, Sample

TrlFunction = Callable[..., Sequence[float | None] | Awaitable[Sequence[float | None]]]
"""``function(prompts, completions, **columns) -> list of float or None``; may be a coroutine."""

_OUR_NAMES = {"prompt", "prompts", "completion", "completions", "completion_ids"}
"""Columns of a data set that are not handed on, as they are not by TRL."""


_TRL_NAMES = {"prompts", "completions", "completion_ids"}
"""Parameters of which every reward function of TRL has one."""


@dataclass(frozen=True, slots=True)
class TrainerState:
    """What a function may ask of its ``trainer_state``."""

    global_step: int
    """Number of the iteration, from 0."""


@dataclass(frozen=True, slots=True)
class TrlReward:
    """Weighted sum of reward functions with TRL's signature.

    Each is called once per iteration with ``prompts`` and ``completions``, lists of texts, or of
    messages where the prompts of the data set are; ``completion_ids``; one list for each other
    column of the data set, its values as they are; ``trainer_state``; and ``log_metric`` and
    ``log_extra``, whose numbers become metrics and whose columns stand with the reasons of the
    samples. Coroutines run side by side. A function may return None for samples it does not
    judge; a sample that none judges is an error.
    """

    functions: tuple[TrlFunction, ...]
    """One function alone may be given as it is."""
    weights: tuple[float, ...] = ()
    """One per function; 1 each by default."""

    def __post_init__(self) -> None:
        given: object = self.functions
        found = (given,) if callable(given) else given
        if not isinstance(found, (tuple, list)) or not found or not all(map(callable, found)):
            raise DataError(
                f"the reward functions are {given!r}; give a function, or a tuple of functions"
            )
        weights = tuple(self.weights) or (1.0,) * len(found)
        if len(weights) != len(found) or not all(number_of(w) is not None for w in weights):
            raise DataError(
                f"{len(found)} reward functions came with the weights {self.weights!r}; give one "
                "number each"
            )
        object.__setattr__(self, "functions", tuple(found))
        object.__setattr__(self, "weights", weights)

    def judge(self, samples: Sequence[Sample], iteration: int) -> Rewards:
        """Rewards of the samples; the mean of each function is a metric."""
        logged = _Logged(len(samples))
        arguments = _columns(samples) | {
            "trainer_state": TrainerState(iteration),
            "log_metric": logged.metric,
            "log_extra": logged.extra,
        }
        given = _called(self.functions, arguments, len(samples))
        values = []
        for row, sample in enumerate(samples):
            judged = [(w, g[row]) for w, g in zip(self.weights, given, strict=True)]
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
        return Rewards(tuple(values), logged.reasons(), metrics=(*metrics, *logged.means()))


def is_trl(function: object) -> TypeGuard[TrlFunction]:
    """Whether a function wants the columns of a batch by name, as reward functions of TRL do."""
    return not _TRL_NAMES.isdisjoint(parameters_of(function))


class _Logged:
    """What functions log of themselves."""

    def __init__(self, num_samples: int) -> None:
        self._num_samples = num_samples
        self._numbers: defaultdict[str, list[float]] = defaultdict(list)
        self._columns: dict[str, list[object]] = {}

    def metric(self, name: str, value: float) -> None:
        """Note a number of the batch."""
        self._numbers[name].append(float(value))

    def extra(self, column: str, values: Sequence[object]) -> None:
        """Note a column, one value per sample."""
        if len(values) != self._num_samples:
            raise RewardError(
                f"log_extra got {len(values)} values of {column!r} for {self._num_samples} "
                "samples; give one per sample, in their order"
            )
        self._columns[column] = list(values)

    def means(self) -> tuple[tuple[str, float], ...]:
        """Metrics: the mean of what was noted under each name."""
        return tuple((n, math.fsum(found) / len(found)) for n, found in self._numbers.items())

    def reasons(self) -> tuple[str, ...]:
        """Per sample its columns as text; none where nothing was noted."""
        if not self._columns:
            return ()
        rows = zip(*self._columns.values(), strict=True)
        return tuple(
            ", ".join(f"{name}={value}" for name, value in zip(self._columns, row, strict=True))
            for row in rows
        )


def _columns(samples: Sequence[Sample]) -> dict[str, object]:
    """Keyword arguments as TRL makes them of a data set."""
    names = {name for sample in samples for name in sample.prompt.meta} - _OUR_NAMES
    columns: dict[str, object] = {
        name: [sample.prompt.meta.get(name) for sample in samples] for name in sorted(names)
    }
    if any(sample.prompt.answer for sample in samples):
        columns.setdefault("answer", [sample.prompt.answer for sample in samples])
    return {
        **columns,
        "prompts": [sample.prompt.meta.get("prompt", sample.prompt.text) for sample in samples],
        "completions": [_completion(sample) for sample in samples],
        "completion_ids": [list(sample.token_ids) for sample in samples],
    }


def _completion(sample: Sample) -> object:
    """A text, or a message where the prompt is one of messages."""
    if "prompt" not in sample.prompt.meta:
        return sample.text
    return [{"role": "assistant", "content": sample.text}]


def _called(
    functions: Sequence[TrlFunction], arguments: Mapping[str, object], count: int
) -> list[list[float | None]]:
    """What each function returned, one entry per sample."""
    found = [_result(function, arguments) for function in functions]
    if any(map(inspect.isawaitable, found)):
        found = asyncio.run(_awaited(functions, found))
    return [_numbers(*pair, count) for pair in zip(functions, found, strict=True)]


def _result(function: TrlFunction, arguments: Mapping[str, object]) -> object:
    """What a function returned; of a coroutine, what is to be awaited."""
    return called(
        lambda: function(**arguments),
        lambda told: RewardError(f"reward {_name(function)} raised {told}"),
    )


async def _awaited(functions: Sequence[TrlFunction], found: Sequence[object]) -> list[object]:
    """The same, with what is to be awaited done, side by side."""
    return await asyncio.gather(*map(_await, functions, found))


async def _await(function: TrlFunction, found: object) -> object:
    if not inspect.isawaitable(found):
        return found
    try:
        return await found
    except RAISED as error:
        problem = told(error)
    raise RewardError(f"reward {_name(function)} raised {problem}")


def _numbers(function: TrlFunction, found: object, count: int) -> list[float | None]:
    """One number or None per sample."""
    if not isinstance(found, Sequence) and not hasattr(found, "__iter__"):
        raise RewardError(
            f"reward {_name(function)} returned {found!r}; it must return one number per sample"
        )
    values = list(found)
    if len(values) != count:
        raise RewardError(
            f"reward {_name(function)} gave {len(values)} values for {count} samples; it must give "
            "one per sample, in their order"
        )
    numbers = [number_of(value) for value in values]
    for value, number in zip(values, numbers, strict=True):
        if value is not None and number is None:
            raise RewardError(
                f"reward {_name(function)} gave {shown(value)}, which is no number; it must give "
                "one number per sample"
            )
    return numbers


def _name(function: TrlFunction) -> str:
    return str(getattr(function, "__name__", type(function).__name__))
