"""Verifiers that compare the last part of a completion with the gold answer."""

from __future__ import annotations

from dataclasses import dataclass

from dataflow.errors import DataError
from dataflow.samples import Sample


@dataclass(frozen=True, slots=True)
class ExactAnswer:
    """1 where the text after the last mark equals the gold answer, else 0.

    White space around either of them does not count.
    """

    mark: str = ""
    """Text after which the final answer stands, e.g. the end of a tool's output; where it does
    not occur, or is empty, the whole completion is the answer."""

    def __post_init__(self) -> None:
        if not isinstance(self.mark, str):
            raise DataError(f"the mark before an answer is {self.mark!r}; give a text")

    def __call__(self, sample: Sample) -> float:
        """Reward of one sample."""
        text = sample.text.rpartition(self.mark)[2] if self.mark else sample.text
        return float(is_gold(text, sample))


def gold_of(sample: Sample) -> str:
    """Gold answer of a sample's prompt.

    Raises
    ------
    DataError
        It has none.
    """
    if not sample.prompt.answer.strip():
        raise DataError(
            f"prompt {sample.prompt.index} ({sample.prompt.text!r}) has no gold answer; this "
            "verifier needs one"
        )
    return sample.prompt.answer


def is_gold(text: str, sample: Sample) -> bool:
    """Whether a text is the gold answer; data sets have blanks and line ends around theirs.

    Raises
    ------
    DataError
        There is none.
    """
    return text.strip() == gold_of(sample).strip()
