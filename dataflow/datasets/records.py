"""Prompts from records that are at hand, in an order that is a function of the seed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from numpy.random import Generator, Philox

from dataflow.datasets.chat import ChatTemplate
from dataflow.errors import DataError
from dataflow.keys import draw_key, stream_seed
from dataflow.samples import Prompt


@dataclass(frozen=True, slots=True)
class Fields:
    """Where a record keeps what a prompt needs."""

    prompt: str = "prompt"
    """Text to continue, or a list of chat messages."""
    answer: str = "answer"
    """Gold answer; records may lack it, but not all of them a field that is named here."""


@dataclass(frozen=True, slots=True)
class RecordPrompts:
    """Items shuffled anew in every epoch; the stream never ends.

    Raises
    ------
    DataError
        There are no items.
    """

    items: tuple[Prompt, ...] = field(repr=False)
    """In the order of the data set; they travel with the job."""
    seed: int = 0
    source: str = "records"
    """Where they came from, for messages."""

    def __post_init__(self) -> None:
        if not self.items:
            raise DataError(f"data set {self.source} is empty; give one with at least one item")

    def batch(self, cursor: int, count: int) -> tuple[Prompt, ...]:
        """Prompts ``cursor … cursor + count - 1``."""
        return shuffled_batch(self.items, self.seed, cursor, count)


def shuffled_batch(
    items: Sequence[Prompt], seed: int, cursor: int, count: int
) -> tuple[Prompt, ...]:
    """Prompts ``cursor … cursor + count - 1`` of the endless stream of shuffled epochs."""
    prompts: list[Prompt] = []
    while len(prompts) < count:
        epoch, offset = divmod(cursor + len(prompts), len(items))
        key = draw_key(stream_seed(seed, "jsonl"), epoch, 0, 0, 0)
        order = Generator(Philox(key=key)).permutation(len(items))
        for item in order[offset : offset + count - len(prompts)].tolist():
            prompts.append(replace(items[item], index=cursor + len(prompts)))
    return tuple(prompts)


def prompts_of(
    records: Iterable[Mapping[str, object]],
    *,
    source: str = "records",
    fields: Fields | None = None,
    seed: int = 0,
    chat: ChatTemplate | None = None,
) -> RecordPrompts:
    """Prompt source of records: dicts, rows of a `datasets.Dataset`, rows of a table.

    Parameters
    ----------
    records
        Each with a prompt; all other fields become the prompt's ``meta``.
    source
        Name of the data set, for messages.
    fields
        Which fields hold prompt and answer.
    seed
        Keys the order.
    chat
        Template for prompts that are lists of messages.

    Raises
    ------
    DataError
        There are no records, or one lacks a usable prompt.
    """
    names = fields or Fields()
    items = tuple(
        prompt_of(record, number, f"data set {source}, record {number}", names, chat)
        for number, record in enumerate(records)
    )
    check_answers(items, names, source)
    return RecordPrompts(items, seed, source)


def check_answers(items: Sequence[Prompt], fields: Fields, source: str) -> None:
    """Raise unless the answers of a data set are where somebody said that they are.

    Raises
    ------
    DataError
        No record has the field; every reward would be asked in vain.
    """
    if fields.answer in (Fields().answer, fields.prompt) or not items:
        return
    if not any(fields.answer in item.meta for item in items):
        raise DataError(
            f"data set {source}: no record has the field {fields.answer!r}, which was named for "
            f"answers; the first one has {', '.join((fields.prompt, *items[0].meta))}"
        )


def prompt_of(
    record: object, number: int, place: str, fields: Fields, chat: ChatTemplate | None
) -> Prompt:
    """Prompt of one record.

    Parameters
    ----------
    record
        A mapping from field to value.
    number
        Its position in the data set.
    place
        Where it stands, for messages.
    fields, chat
        See `prompts_of`.

    Raises
    ------
    DataError
        It has no usable prompt.
    """
    if not isinstance(record, Mapping):
        raise DataError(f"{place} is {record!r}; give a mapping from fields to values")
    given = record.get(fields.prompt)
    talk = given if isinstance(given, (list, tuple)) else None
    try:
        text = given if chat is None or talk is None else chat.render(talk)
    except DataError as error:
        raise DataError(f"{place}: {error}") from error
    if not isinstance(text, str) or not text:
        remedy = "; give a chat template for prompts that are messages" if talk else ""
        raise DataError(
            f"{place}: field {fields.prompt!r} is {given!r}; every record needs a non-empty prompt "
            f"(or name another field: it has {', '.join(map(str, record)) or 'none'}){remedy}"
        )
    answer = record.get(fields.answer)
    facts = {str(name): value for name, value in record.items() if name != fields.prompt}
    if talk is not None:
        facts["prompt"] = talk
    return Prompt(number, text, "" if answer is None else str(answer), facts)
