"""Verifiers of the letter tasks: the symbols of the prompt in one certain order.

Each is graded, the share of positions that are right, since a policy that never gets a whole
answer right would learn nothing from an exact match.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from dataflow.errors import DataError
from dataflow.samples import Sample


def _ascending(symbols: str) -> str:
    return "".join(sorted(symbols))


def _descending(symbols: str) -> str:
    return "".join(sorted(symbols, reverse=True))


def _reversed(symbols: str) -> str:
    return symbols[::-1]


def _copy(symbols: str) -> str:
    return symbols


ORDERS: dict[str, Callable[[str], str]] = {
    "ascending": _ascending,
    "descending": _descending,
    "reversed": _reversed,
    "copy": _copy,
}
"""Name → the wanted order of the prompt's symbols."""


@dataclass(frozen=True, slots=True)
class OrderVerifier:
    """Share of the positions at which a completion has the wanted symbol, in [0, 1]."""

    order: str
    """A name in `ORDERS`."""

    def __call__(self, sample: Sample) -> float:
        """Reward of one sample; a completion of the wrong length loses what it lacks or adds."""
        wanted = self.wanted(sample)
        right = sum(a == b for a, b in zip(wanted, sample.text, strict=False))
        return right / max(len(wanted), len(sample.text))

    def wanted(self, sample: Sample) -> str:
        """The right answer to the sample's prompt."""
        text = sample.prompt.text
        given = sample.prompt.meta.get("symbols")
        symbols = str(given) if given else text.removeprefix("x").removesuffix("=")
        if not symbols:
            raise DataError(
                f"prompt {sample.prompt.index} ({text!r}) has no symbols to order; the verifier "
                f"{self.order!r} is for prompts such as 'x31524='"
            )
        return ORDERS[self.order](symbols)
