"""Calls in completions: what a policy wrote between two marks, answered behind them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Protocol

from dataflow.isolated import CallEnd, Outcome
from dataflow.samples import EndReason, Sample

Ask = Callable[[Sequence[str]], Iterable[Outcome]]
"""Answers calls, in their order."""


class Marks(Protocol):
    """How a call and its answer are written."""

    @property
    def opening(self) -> str:
        """Text that begins a call."""
        ...

    @property
    def closing(self) -> str:
        """Text that ends a call; a stop text of the rollout."""
        ...

    @property
    def answer_end(self) -> str:
        """Text after the answer."""
        ...

    @property
    def max_answer_chars(self) -> int:
        """Longest answer that is passed on."""
        ...


def answer_calls(samples: Sequence[Sample], marks: Marks, ask: Ask) -> tuple[Sample, ...]:
    """The samples with the calls answered that ended their last turns; the others as they are."""
    calls = {row: _call(s.text, marks) for row, s in enumerate(samples) if _has_called(s)}
    # Equal calls have equal answers: samples of one prompt share theirs.
    asked = list(dict.fromkeys(text for text in calls.values() if text is not None))
    outcomes = dict(zip(asked, ask(asked), strict=True))
    stepped = list(samples)
    for row, text in calls.items():
        no_call = Outcome(CallEnd.RAISED, reason="there is no call in the turn")
        stepped[row] = _answered(samples[row], no_call if text is None else outcomes[text], marks)
    return tuple(stepped)


def _call(text: str, marks: Marks) -> str | None:
    """What stands between the last marks of a completion, or None if there is no call."""
    head, found, _ = text.rpartition(marks.closing)
    _, opened, call = head.rpartition(marks.opening)
    return call.strip() or None if found and opened else None


def _answered(sample: Sample, outcome: Outcome, marks: Marks) -> Sample:
    """The sample after its call."""
    answer, problem = str(outcome.value), outcome.reason
    if outcome.end is CallEnd.ANSWERED and len(answer) > marks.max_answer_chars:
        problem = f"the answer has {len(answer)} characters, more than {marks.max_answer_chars}"
    if problem:
        end = EndReason.TOOL_ERROR
        if outcome.end is CallEnd.TIMED_OUT:
            end = EndReason.TOOL_TIMEOUT
        return replace(sample, end=end, is_active=False, problem=problem)
    return replace(sample, pending_text=f"{answer}{marks.answer_end}")


def _has_called(sample: Sample) -> bool:
    """Whether the sample waits for a tool."""
    return sample.is_active and sample.end is EndReason.TOOL_CALL
