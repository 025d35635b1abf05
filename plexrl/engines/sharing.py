"""How a request to an engine is dealt out to its ranks, and their results put together.

Tokens and log-probabilities of a sample depend on nothing but the sample, so they may be computed
by any rank. Rows of one prompt stay together: they share its prefill.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import cast

from dataflow.samples import Prompt, Sample
from plexrl.engines.frames import Request
from plexrl.engines.protocol import Interrupted

_INPUTS = {"generate": 0, "generate_until": 1, "logprobs": 0, "values": 0}
"""Method of which each rank computes a share → which argument is shared out."""

FIRST_ONLY = frozenset({"layout", "read_folder"})
"""Methods that one rank runs for all."""


def is_shared(method: str) -> bool:
    """Whether each rank computes a share of its own, without waiting for the others."""
    return method in _INPUTS


def deal(request: Request, count: int) -> list[Request]:
    """The request for each of `count` ranks, in their order."""
    place = _INPUTS.get(request.method)
    if place is None:
        return [request] * count
    inputs = request.args[place]
    before, after = request.args[:place], request.args[place + 1 :]
    return [
        Request(request.method, (*before, _share(inputs, rank, count), *after))
        for rank in range(count)
    ]


def put_together(request: Request, results: Sequence[object]) -> object:
    """The result of a request from those of all ranks, in their order."""
    place = _INPUTS.get(request.method)
    if request.method == "memory_bytes":
        return sum(cast("int", found) for found in results)
    if place is None:
        return results[0]
    owners = _owners(_items(request.args[place]), len(results))
    if request.method in {"logprobs", "values"}:
        return _woven(owners, [_sequence(found) for found in results])
    return _samples(results, owners)


def _samples(results: Sequence[object], owners: Sequence[int]) -> object:
    """Samples of all ranks in the order of what they come from; interrupted if any is."""
    parts = [_sequence(f.samples if isinstance(f, Interrupted) else f) for f in results]
    num_inputs = [owners.count(rank) for rank in range(len(results))]
    rank = next(r for r, count in enumerate(num_inputs) if count or not owners)
    each = len(parts[rank]) // num_inputs[rank] if owners else 0
    owner_of_row = [owner for owner in owners for _ in range(each)]
    whole = _woven(owner_of_row, parts)
    places = [[row for row, o in enumerate(owner_of_row) if o == r] for r in range(len(results))]
    stopped = [(r, found) for r, found in enumerate(results) if isinstance(found, Interrupted)]
    if not stopped:
        return whole
    rows = sorted(places[r][row] for r, found in stopped for row in found.rows)
    return Interrupted(stopped[0][1].name, whole, tuple(rows))  # type: ignore[arg-type]


def _share(inputs: object, rank: int, count: int) -> object:
    items = _items(inputs)
    mine = [row for row, owner in enumerate(_owners(items, count)) if owner == rank]
    chosen = tuple(items[row] for row in mine)
    if not isinstance(inputs, Interrupted):
        return chosen
    unfinished = frozenset(inputs.rows)
    rows = tuple(place for place, row in enumerate(mine) if row in unfinished)
    return replace(inputs, samples=chosen, rows=rows)  # type: ignore[arg-type]


def _owners(items: Iterable[Prompt | Sample], count: int) -> list[int]:
    """Rank of each item: prompts go round in the order they first come in."""
    place: dict[int, int] = {}
    return [
        place.setdefault((i if isinstance(i, Prompt) else i.prompt).index, len(place)) % count
        for i in items
    ]


def _woven(owners: Sequence[int], parts: Sequence[Sequence[object]]) -> tuple[object, ...]:
    """Items of all ranks: each the next one of its owner."""
    following = [iter(part) for part in parts]
    return tuple(next(following[owner]) for owner in owners)


def _items(inputs: object) -> Sequence[Prompt | Sample]:
    return _sequence(inputs.samples if isinstance(inputs, Interrupted) else inputs)  # type: ignore[return-value]


def _sequence(found: object) -> Sequence[object]:
    assert isinstance(found, Sequence)
    return found
