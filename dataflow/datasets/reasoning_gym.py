"""Prompts of reasoning-gym (arXiv 2505.24760): procedurally generated puzzles."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from dataflow.errors import DataError
from dataflow.extras import load_extra
from dataflow.keys import stream_seed
from dataflow.samples import Prompt

_ENTRY = "reasoning_gym_entry"
"""Key of a prompt's meta that holds the whole puzzle, as JSON, for its scorer."""


@dataclass(frozen=True, slots=True)
class ReasoningGymPrompts:
    """Puzzles of one generator; the stream begins again after `num_puzzles` of them.

    Raises
    ------
    MissingExtraError
        reasoning-gym is not installed.
    DataError
        There is no such generator, or it refuses the configuration.
    """

    name: str
    """Generator, e.g. ``chain_sum``."""
    seed: int = 0
    config: Mapping[str, object] = field(default_factory=dict)
    """Settings of the generator, e.g. ``{"max_digits": 2}``."""
    num_puzzles: int = 1000
    """Different puzzles; a few generators make all of theirs when they are created."""
    suffix: str = ""
    """Text after each question, e.g. how to write the answer."""

    def __post_init__(self) -> None:
        self.batch(0, 1)

    def batch(self, cursor: int, count: int) -> tuple[Prompt, ...]:
        """Prompts ``cursor … cursor + count - 1``."""
        puzzles = _generator(
            self.name, self.seed, self.num_puzzles, json.dumps(dict(self.config), sort_keys=True)
        )
        return tuple(
            self._prompt(index, puzzles[index % len(puzzles)])
            for index in range(cursor, cursor + count)
        )

    def _prompt(self, index: int, entry: Mapping[str, Any]) -> Prompt:
        answer = entry.get("answer")
        return Prompt(
            index,
            f"{entry['question']}{self.suffix}",
            "" if answer is None else str(answer),
            {"generator": self.name, _ENTRY: json.dumps(entry, default=str)},
        )


def entry_of(prompt: Prompt) -> dict[str, Any]:
    """The puzzle of a prompt, as its generator made it.

    Raises
    ------
    DataError
        The prompt is none of reasoning-gym.
    """
    if _ENTRY not in prompt.meta:
        raise DataError(
            f"prompt {prompt.index} ({prompt.text!r}) is no puzzle of reasoning-gym; take prompts "
            "from dataflow.datasets.ReasoningGymPrompts"
        )
    entry: dict[str, Any] = json.loads(str(prompt.meta[_ENTRY]))
    return entry


@lru_cache(maxsize=16)
def _generator(name: str, seed: int, size: int, config: str) -> Any:  # noqa: ANN401 (an untyped library)
    """The generator, with its puzzles."""
    library = load_extra("reasoning_gym", "tasks", f"the data set {name!r}")
    try:
        # 31 bits: generators hand the sum of seed and index to random.Random and numpy alike.
        number = stream_seed(seed, "reasoning_gym") & 0x7FFFFFFF
        return library.create_dataset(name, seed=number, size=size, **json.loads(config))
    except (ValueError, TypeError, AssertionError, KeyError) as error:
        raise DataError(
            f"reasoning-gym cannot make {name!r} with {config}: {error}; give the name of a "
            "generator and settings it has"
        ) from error
