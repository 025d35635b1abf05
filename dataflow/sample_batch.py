"""Samples of one rollout as they travel: one block of bytes between processes."""

from __future__ import annotations

import operator
import pickle
from collections.abc import Iterator, Sequence
from dataclasses import fields
from typing import overload

import cloudpickle

from dataflow.samples import Sample

_FIELDS = tuple(operator.attrgetter(field.name) for field in fields(Sample))


class SampleBatch(Sequence[Sample]):
    """An immutable sequence of samples, equal to the tuple of them.

    Pickled, it is one block of bytes: the columns of the samples. Unpickled, it stays that block
    until somebody looks at a sample, so that whoever only passes it on pays for a copy of the
    bytes and no more.

    Parameters
    ----------
    samples
        The samples, in order.
    """

    __slots__ = ("_length", "_packed", "_samples")

    def __init__(self, samples: Sequence[Sample]) -> None:
        self._samples: tuple[Sample, ...] | None = tuple(samples)
        self._length = len(self._samples)
        self._packed: bytes | None = None

    @classmethod
    def _from_bytes(cls, packed: bytes, length: int) -> SampleBatch:
        batch = cls(())
        batch._packed, batch._length, batch._samples = packed, length, None
        return batch

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, index: int) -> Sample: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[Sample, ...]: ...

    def __getitem__(self, index: int | slice) -> Sample | tuple[Sample, ...]:
        return self._looked_at()[index]

    def __iter__(self) -> Iterator[Sample]:
        return iter(self._looked_at())

    def __add__(self, other: Sequence[Sample]) -> tuple[Sample, ...]:
        return (*self, *other)

    def __radd__(self, other: Sequence[Sample]) -> tuple[Sample, ...]:
        return (*other, *self)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, (SampleBatch, tuple)):
            return NotImplemented
        return self._looked_at() == tuple(other)

    # The facts of a prompt are a mapping: neither a batch nor its tuple has a hash.
    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"SampleBatch({list(self)!r})"

    def __sizeof__(self) -> int:
        return object.__sizeof__(self) + len(self._bytes())

    def __reduce__(self) -> tuple[object, ...]:
        return SampleBatch._from_bytes, (self._bytes(), self._length)

    def _looked_at(self) -> tuple[Sample, ...]:
        # Two threads that look at once both unpack, and either result will do.
        if self._samples is None:
            assert self._packed is not None
            self._samples = tuple(map(Sample, *pickle.loads(self._packed)))  # noqa: S301 (ours)
        return self._samples

    def _bytes(self) -> bytes:
        if self._packed is None:
            assert self._samples is not None
            columns = tuple(tuple(map(get, self._samples)) for get in _FIELDS)
            self._packed = cloudpickle.dumps(columns, protocol=pickle.HIGHEST_PROTOCOL)
        return self._packed


def as_batch(value: object) -> object:
    """A tuple of samples as a batch; anything else as it is."""
    if isinstance(value, tuple) and value and isinstance(value[0], Sample):
        return SampleBatch(value)
    return value
