"""Prompts of a file or folder, whatever the format that its name says."""

from __future__ import annotations

from pathlib import Path

from dataflow.datasets.chat import ChatTemplate
from dataflow.datasets.jsonl import JsonlPrompts
from dataflow.datasets.records import Fields, RecordPrompts
from dataflow.datasets.tables import hub_prompts, parquet_prompts
from dataflow.errors import DataError


def prompts_at(
    path: str | Path, *, fields: Fields | None = None, chat: ChatTemplate | None = None
) -> RecordPrompts:
    """Prompt source of what lies at a path.

    Parameters
    ----------
    path
        A Parquet file, a folder that ``Dataset.save_to_disk`` of `datasets` wrote (its split
        ``train``, if it has several), or a JSON Lines file.
    fields, chat
        See `dataflow.datasets.records.prompts_of`.

    Raises
    ------
    DataError
        It cannot be read, is empty, or has a record without a prompt.
    """
    if not isinstance(path, (str, Path)) or not str(path):
        raise DataError(f"the path of a data set is {path!r}; give that of a file, or of a folder")
    if Path(path).is_dir():
        return hub_prompts(path, fields=fields, chat=chat)
    if Path(path).suffix == ".parquet":
        return parquet_prompts(path, fields=fields, chat=chat)
    names = fields or Fields()
    read = JsonlPrompts(str(path), prompt_field=names.prompt, answer_field=names.answer, chat=chat)
    return RecordPrompts(read.items, source=str(path))
