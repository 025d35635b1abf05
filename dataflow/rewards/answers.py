"""Verifiers that compare the last part of a completion with the gold answer."""

from __future__ import annotations

from dataclasses import dataclass

from dataflow.errors import DataError
from dataflow.samples import Sample


@dataclass(frozen=True, slots=True)
class ExactAnswer:
    """1 where the text after the last mark equals the gold answer, else 0."""

    mark: str = ""
    """Text after which the final answer stands, e.g. the end of a tool's output; where it does
    not occur, or is empty, the whole completion is the answer."""

    def __call__(self, sample: Sample) -> float:
        """Reward of one sample."""
        gold = sample.prompt.answer
        if not gold:
            raise DataError(
                f"prompt {sample.prompt.index} ({sample.prompt.text!r}) has no gold answer; this "
                "verifier needs one"
            )
        text = sample.text.rpartition(self.mark)[2] if self.mark else sample.text
        return float(text.strip() == gold)
