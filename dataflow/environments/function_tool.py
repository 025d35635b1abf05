"""A tool of somebody's own: a function from text to text, in a process that can be killed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from dataflow.environments.marked_calls import answer_calls
from dataflow.errors import DataError, NotReadyError, ToolError
from dataflow.isolated import Kind, Outcome, call_each
from dataflow.processes import ProcessLimits
from dataflow.samples import Sample


@dataclass(frozen=True, slots=True)
class FunctionTool:
    """Hands the call that ended each sample's turn to a function, and the policy its answer.

    One process serves all calls of a batch; equal calls are asked once. A call that hangs, takes
    too much memory or raises ends its own sample only, with the reason in ``Sample.problem``; the
    rest go on, in a new process if they must. A function that wants the policy to read its errors
    returns them.

    Raises
    ------
    DataError
        The function cannot be called, or a mark is empty.
    """

    function: Callable[[str], object]
    """What stands between the marks → the answer; it travels to the process by cloudpickle."""
    opening: str = "<"
    """Text that begins a call."""
    closing: str = ">"
    """Text that ends a call; a stop text of the rollout."""
    answer_end: str = "|"
    """Text after the tool's answer."""
    max_answer_chars: int = 2000
    """Longest answer that is passed on, in characters; a longer one ends the episode."""
    limits: ProcessLimits = field(
        default_factory=lambda: ProcessLimits(wall_s=10.0, memory_bytes=4 << 30)
    )
    """What one call may use; address space, not memory in use, is limited."""

    def __post_init__(self) -> None:
        if not callable(self.function) or not (self.opening and self.closing):
            raise DataError(
                f"a tool of {self.function!r} between {self.opening!r} and {self.closing!r} cannot "
                "be; give a function of a text, and two texts that mark a call"
            )

    def step(self, samples: Sequence[Sample], iteration: int = 0) -> tuple[Sample, ...]:
        """Answer the samples whose last turn ended in a call; the others stay as they are.

        Raises
        ------
        ToolError
            The process of the function cannot be started.
        """
        del iteration
        return answer_calls(samples, self, self._ask)

    def _ask(self, calls: Sequence[str]) -> Iterator[Outcome]:
        requests = [(call,) for call in calls]
        try:
            yield from call_each(self.function, requests, self.limits, Kind.TEXT)
        except NotReadyError as error:
            raise ToolError(
                f"the process of the tool cannot be used: {error}; check that what it imports is "
                "installed on the worker"
            ) from error
