"""A reward function as it is written for TRL's GRPOTrainer."""

from __future__ import annotations

from typing import Any


def right_places(completions: list[str], gold: list[str], **_: Any) -> list[float]:  # noqa: ANN401
    """Share of the places that have the right digit; `gold` is a column of the data set."""
    return [
        sum(a == b for a, b in zip(text, right, strict=False)) / max(len(text), len(right))
        for text, right in zip(completions, gold, strict=True)
    ]
