"""The calculator tool: a policy writes ``<12*34>`` and reads ``408|``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from dataflow.environments.python_process import Answer, CallEnd, evaluate
from dataflow.processes import ProcessLimits
from dataflow.samples import EndReason, Sample

_ENDS = {CallEnd.FAILED: EndReason.TOOL_ERROR, CallEnd.TIMED_OUT: EndReason.TOOL_TIMEOUT}


@dataclass(frozen=True, slots=True)
class PythonTool:
    """Evaluates the call that ended each sample's turn in a real Python process.

    One process serves all calls of a batch. A call that hangs or kills it ends its own sample
    only; the rest go on in a new process. Only arithmetic is evaluated.
    """

    opening: str = "<"
    """Text that begins a call."""
    closing: str = ">"
    """Text that ends a call; a stop text of the rollout."""
    answer_end: str = "|"
    """Text after the tool's answer."""
    max_answer_chars: int = 32
    """Longest answer that is passed on, in characters; a longer one ends the episode."""
    limits: ProcessLimits = field(default_factory=ProcessLimits)
    """What one call may use."""

    def step(self, samples: Sequence[Sample], iteration: int = 0) -> tuple[Sample, ...]:
        """Answer the samples whose last turn ended in a call; the others stay as they are."""
        del iteration
        calls = {row: self._expression(s) for row, s in enumerate(samples) if _has_called(s)}
        # Equal calls have equal answers: samples of one prompt share theirs.
        expressions = list(dict.fromkeys(text for text in calls.values() if text is not None))
        answers = dict(zip(expressions, evaluate(expressions, self.limits), strict=True))
        stepped = list(samples)
        for row, text in calls.items():
            answer = (
                Answer(CallEnd.FAILED, "no call in the turn") if text is None else answers[text]
            )
            stepped[row] = self._answered(samples[row], answer)
        return tuple(stepped)

    def _expression(self, sample: Sample) -> str | None:
        """What stands between the last marks of a completion, or None if there is no call."""
        head, found, _ = sample.text.rpartition(self.closing)
        _, opened, expression = head.rpartition(self.opening)
        return expression.strip() or None if found and opened else None

    def _answered(self, sample: Sample, answer: Answer) -> Sample:
        """The sample after its call."""
        end = _ENDS.get(answer.end)
        if end is None and len(answer.text) > self.max_answer_chars:
            end = EndReason.TOOL_ERROR
        if end is not None:
            return replace(sample, end=end, is_active=False)
        return replace(sample, pending_text=f"{answer.text}{self.answer_end}")


def _has_called(sample: Sample) -> bool:
    """Whether the sample waits for a tool."""
    return sample.is_active and sample.end is EndReason.TOOL_CALL
