"""The calculator tool: a policy writes ``<12*34>`` and reads ``408|``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

from dataflow.environments.marked_calls import answer_calls
from dataflow.environments.python_process import evaluate
from dataflow.processes import ProcessLimits
from dataflow.samples import Sample


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
        return answer_calls(samples, self, partial(evaluate, limits=self.limits))
