"""Prompts from a JSON Lines file, in an order that is a function of the seed."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

from dataflow.datasets.chat import ChatTemplate
from dataflow.datasets.records import Fields, check_answers, prompt_of, shuffled_batch
from dataflow.errors import DataError
from dataflow.samples import Prompt


@dataclass(frozen=True, slots=True)
class JsonlPrompts:
    """Items of a file, shuffled anew in every epoch; the stream never ends.

    The file is read when the source is made, and the items travel with the job, so that the
    workers need not see the file.

    Raises
    ------
    DataError
        The file cannot be read, is empty, or has an item without a prompt.
    """

    path: str
    """File with one JSON object per line."""
    seed: int = 0
    prompt_field: str = "prompt"
    """Field that holds the prompt."""
    answer_field: str = "answer"
    """Field that holds the gold answer; items may lack it."""
    chat: ChatTemplate | None = None
    """Template for prompts that are lists of messages."""
    items: tuple[Prompt, ...] = field(init=False, repr=False)
    """Items in the order of the file."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "items", self._read())

    def batch(self, cursor: int, count: int) -> tuple[Prompt, ...]:
        """Prompts ``cursor … cursor + count - 1``."""
        return shuffled_batch(self.items, self.seed, cursor, count)

    def _read(self) -> tuple[Prompt, ...]:
        """All items of the file."""
        try:
            # Not splitlines: texts may hold other line separators, which JSON leaves alone.
            lines = Path(self.path).read_text(encoding="utf-8-sig").split("\n")
        except (OSError, UnicodeDecodeError) as error:
            raise DataError(
                f"data set {self.path}: cannot be read ({error}); give a JSON Lines file in UTF-8"
            ) from error
        items = tuple(
            self._item(number, line) for number, line in enumerate(lines, 1) if line.strip()
        )
        if not items:
            raise DataError(f"data set {self.path} is empty; give a file with one item per line")
        check_answers(items, self._fields, self.path)
        return items

    @property
    def _fields(self) -> Fields:
        return Fields(self.prompt_field, self.answer_field)

    def _item(self, number: int, line: str) -> Prompt:
        """Item of one line."""
        place = f"data set {self.path}, line {number}"
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise DataError(f"{place}: no JSON ({error}); give one object per line") from error
        return prompt_of(record, number - 1, place, self._fields, self.chat)
