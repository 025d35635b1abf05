"""What a batch of rewards says about how much can be learned from it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from dataflow.samples import EndReason, Sample, group_rows

_ROUNDING = 1e-6
"""Share of the largest value that rounding in float32 may come to."""
_TOOL_ENDS = (EndReason.TOOL_ERROR, EndReason.TOOL_TIMEOUT)


def are_equal(values: Iterable[float]) -> bool:
    """Whether values differ by no more than rounding, so that no difference can be learned from.

    ``0.1 + 0.2`` and ``0.3`` are equal: divided by its own deviation, that noise would look like a
    lesson.
    """
    found = tuple(values)
    if not found:
        return True
    least, most = min(found), max(found)
    return most - least <= _ROUNDING * max(abs(least), abs(most))


def batch_metrics(
    values: Sequence[float], samples: Sequence[Sample]
) -> tuple[tuple[str, float], ...]:
    """Metrics of a batch.

    ``reward_std``; ``equal_groups``, the share of prompts whose samples all earned the same and
    therefore teach nothing to group-relative advantages; ``truncated``, the share of samples cut
    off at the token limit; ``num_tokens_mean``, tokens the policy drew per sample; ``cancelled``
    and ``failed_tools``, the numbers of samples that somebody or a tool ended, where there are any.
    """
    if not samples:
        return ()
    mean = math.fsum(values) / len(values)
    variance = math.fsum((value - mean) ** 2 for value in values) / len(values)
    groups = group_rows(samples)
    num_equal = sum(are_equal(values[row] for row in rows) for rows in groups.values())
    num_cancelled = sum(sample.is_cancelled for sample in samples)
    num_failed = sum(sample.end in _TOOL_ENDS for sample in samples)
    num_cut = sum(sample.end is EndReason.LENGTH for sample in samples)
    return (
        ("reward_std", math.sqrt(variance)),
        ("equal_groups", num_equal / len(groups)),
        ("truncated", num_cut / len(samples)),
        ("num_tokens_mean", sum(sum(sample.policy_mask) for sample in samples) / len(samples)),
        *((("cancelled", float(num_cancelled)),) if num_cancelled else ()),
        *((("failed_tools", float(num_failed)),) if num_failed else ()),
    )
