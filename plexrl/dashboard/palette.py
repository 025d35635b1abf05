"""Colours of jobs and shades of functions: the same on every page and in the terminal."""

from __future__ import annotations

from collections.abc import Sequence

JOB_COLOURS = (
    "#0072b2",
    "#e69f00",
    "#009e73",
    "#cc79a7",
    "#56b4e9",
    "#d55e00",
    "#8c6bb1",
    "#7f7f4c",
)
"""Told apart by colour-blind readers too (Okabe and Ito, 2008, without yellow and black)."""

_SHADES = {"rollout": 0.0, "train": -0.34, "logprob": 0.36, "evaluate": 0.5, "sync": 0.6}
"""LLM function → how far its shade lies towards white (positive) or black (negative)."""

SWAP_COLOUR = "#141414"
"""A state that comes from host memory."""
STORE_SWAP_COLOUR = "#c1121f"
"""A state that comes from the store."""


def job_colours(jobs: Sequence[str]) -> dict[str, str]:
    """A colour for each job, in the order given; each eight of them have all eight.

    They begin elsewhere each time, so that jobs dealt out to groups in turn differ on a group.
    """
    return {job: JOB_COLOURS[_turned(place) % len(JOB_COLOURS)] for place, job in enumerate(jobs)}


def _turned(place: int) -> int:
    """Sum of the digits in base eight: differs between places a power of eight apart."""
    total = 0
    while place:
        place, digit = divmod(place, len(JOB_COLOURS))
        total += digit
    return total


def shade(colour: str, function: str) -> str:
    """The job's colour in the shade of a function; unknown functions keep the plain colour.

    Parameters
    ----------
    colour
        ``#rrggbb``.
    function
        Name of a phase, e.g. ``train``.
    """
    amount = _SHADES.get(function, 0.0)
    target = 255 if amount > 0 else 0
    parts = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    mixed = (round(part + (target - part) * abs(amount)) for part in parts)
    return "#" + "".join(f"{part:02x}" for part in mixed)
