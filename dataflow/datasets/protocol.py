"""Where prompts come from: a deterministic function of a cursor, so that a replay sees the same."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from dataflow.samples import Prompt


@runtime_checkable
class PromptSource(Protocol):
    """An endless stream of prompts that can be read from any position."""

    def batch(self, cursor: int, count: int) -> tuple[Prompt, ...]:
        """Prompts ``cursor … cursor + count - 1`` of the stream.

        The same arguments give the same prompts, in any process and at any time, and
        ``Prompt.index`` is the position in the stream.
        """
        ...
