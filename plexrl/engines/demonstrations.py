"""What the tiny base is warmed up on: answers that leave open which one a verifier wants.

Two kinds of prompt. ``x31524=`` is answered by the digits in one of four orders, drawn at
random. ``q12*34=`` may be answered by a call ``<12*34>``, whose result ``408|`` an environment
appends, and the number after it; some demonstrations call with a wrong digit and some guess
without a call, so that a policy has something left to learn from rewards.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from numpy.random import Generator, Philox

from dataflow.keys import draw_key, stream_seed
from dataflow.samples import Prompt, Sample

_DIGITS = "0123456789"

ORDERS: tuple[Callable[[str], str], ...] = (
    lambda digits: "".join(sorted(digits)),
    lambda digits: "".join(sorted(digits, reverse=True)),
    lambda digits: digits[::-1],
    lambda digits: digits,
)
"""Ascending, descending, reversed, copy."""

END = "\0"
"""Stands for the end-of-sequence token in a demonstration's text."""


@dataclass(frozen=True, slots=True)
class Mixture:
    """Shares of the kinds of demonstration."""

    tool_share: float = 0.25
    """Prompts with a product; the rest asks for an order of digits."""
    wrong_call_share: float = 0.2
    """Of the product prompts: calls with one wrong digit."""
    guess_share: float = 0.2
    """Of the product prompts: an answer without a call."""


@dataclass(frozen=True, slots=True)
class Piece:
    """A stretch of a completion and who wrote it."""

    text: str
    is_policy: bool = True


def demonstrations(
    mixture: Mixture, seed: int, step: int, count: int
) -> Iterator[tuple[str, tuple[Piece, ...]]]:
    """Prompts and completions of one warm-up step, a function of seed and step."""
    draws = Generator(Philox(key=draw_key(stream_seed(seed, "warmup"), step, 0, 0, 0)))
    num_tool = round(count * mixture.tool_share)
    for row in range(count):
        yield _product(mixture, draws) if row < num_tool else _order(draws)


def as_sample(
    index: int, prompt: str, pieces: tuple[Piece, ...], encode: Callable[[str], tuple[int, ...]]
) -> Sample:
    """A demonstration as a sample whose policy tokens can be trained on.

    Parameters
    ----------
    index
        Row of the demonstration in its step.
    prompt, pieces
        What `demonstrations` gave.
    encode
        Text → tokens; knows `END`.
    """
    token_ids: list[int] = []
    mask: list[bool] = []
    for piece in pieces:
        added = encode(piece.text)
        token_ids += added
        mask += [piece.is_policy] * len(added)
    return Sample(
        Prompt(index, prompt),
        0,
        encode(prompt),
        tuple(token_ids),
        tuple(mask),
        (0.0,) * len(token_ids),
    )


def _order(draws: Generator) -> tuple[str, tuple[Piece, ...]]:
    digits = "".join(_DIGITS[place] for place in draws.permutation(len(_DIGITS))[:5])
    order = ORDERS[int(draws.integers(len(ORDERS)))]
    return f"x{digits}=", (Piece(order(digits) + END),)


def _product(mixture: Mixture, draws: Generator) -> tuple[str, tuple[Piece, ...]]:
    left, right = (int(value) for value in draws.integers(10, 100, size=2))
    prompt = f"q{left}*{right}="
    kind = draws.random()
    if kind < mixture.guess_share:
        guess = left * int(draws.integers(10, 100))
        return prompt, (Piece(f"{guess}{END}"),)
    if kind < mixture.guess_share + mixture.wrong_call_share:
        left, right = _one_digit_off(left, right, draws)
    result = left * right
    return prompt, (
        Piece(f"<{left}*{right}>"),
        Piece(f"{result}|", is_policy=False),
        Piece(f"{result}{END}"),
    )


def _one_digit_off(left: int, right: int, draws: Generator) -> tuple[int, int]:
    digits = list(f"{left}{right}")
    place = int(draws.integers(len(digits)))
    first = "1" if place in {0, 2} else "0"
    others = [digit for digit in _DIGITS if digit >= first and digit != digits[place]]
    digits[place] = others[int(draws.integers(len(others)))]
    text = "".join(digits)
    return int(text[:2]), int(text[2:])
