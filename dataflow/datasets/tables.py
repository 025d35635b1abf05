"""Prompts from Parquet files and Hugging Face data sets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from dataflow.datasets.chat import ChatTemplate
from dataflow.datasets.records import Fields, RecordPrompts, prompts_of
from dataflow.errors import DataError
from dataflow.extras import load_extra


def parquet_prompts(
    path: str | Path,
    *,
    fields: Fields | None = None,
    seed: int = 0,
    chat: ChatTemplate | None = None,
) -> RecordPrompts:
    """Prompt source of a Parquet file.

    Raises
    ------
    DataError
        The file cannot be read, is empty, or has a row without a prompt.
    """
    parquet = load_extra("pyarrow.parquet", "tasks", "reading Parquet")
    try:
        rows = parquet.read_table(path).to_pylist()
    except (OSError, ValueError) as error:
        raise DataError(
            f"data set {path}: cannot be read as Parquet ({error}); check the file"
        ) from error
    return prompts_of(rows, source=str(path), fields=fields, seed=seed, chat=chat)


def hub_prompts(
    data: Iterable[Mapping[str, object]] | str | Path,
    *,
    split: str = "train",
    fields: Fields | None = None,
    seed: int = 0,
    chat: ChatTemplate | None = None,
) -> RecordPrompts:
    """Prompt source of a Hugging Face data set.

    Parameters
    ----------
    data
        A `datasets.Dataset`, or a folder that ``Dataset.save_to_disk`` wrote.
    split
        Which split of a folder that holds several.
    fields, seed, chat
        See `dataflow.datasets.records.prompts_of`.

    Raises
    ------
    MissingExtraError
        A folder was given and `datasets` is not installed.
    DataError
        The data set cannot be read, is empty, or has a record without a prompt.
    """
    if not isinstance(data, (str, Path)):
        return prompts_of(data, source="of the data set", fields=fields, seed=seed, chat=chat)
    library = load_extra("datasets", "tasks", "reading a Hugging Face data set")
    try:
        loaded = library.load_from_disk(str(data))
        rows = loaded[split] if isinstance(loaded, library.DatasetDict) else loaded
    except (OSError, ValueError, KeyError) as error:
        raise DataError(
            f"data set {data}: cannot be read ({error}); give a folder that save_to_disk wrote, "
            "and one of its splits"
        ) from error
    return prompts_of(rows, source=str(data), fields=fields, seed=seed, chat=chat)
