"""Step sizes over the iterations of a job."""

from __future__ import annotations

import math

SCHEDULES = ("constant", "linear", "cosine")
"""Names: stays; falls to 0 in a line; falls to 0 along half a cosine (arXiv 1608.03983)."""


def learning_rate(
    peak: float, schedule: str, index: int, iterations: int, warmup_iterations: int = 0
) -> float:
    """Step size of one iteration.

    Parameters
    ----------
    peak
        Largest step size.
    schedule
        A name in `SCHEDULES`.
    index, iterations
        Which iteration, from 0, of how many.
    warmup_iterations
        Iterations over which the step size rises in a line to `peak`; the schedule follows.
    """
    if index < warmup_iterations:
        return peak * (index + 1) / warmup_iterations
    done = (index - warmup_iterations) / max(iterations - warmup_iterations, 1)
    if schedule == "linear":
        return peak * (1 - done)
    if schedule == "cosine":
        return peak * 0.5 * (1 + math.cos(math.pi * done))
    return peak
