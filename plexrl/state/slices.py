"""Parts of tensors as a reader with another parallel layout wants them: rows, columns, shards."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from plexrl.core.layout import DTYPE_BYTES, StateLayout, TensorSlot
from plexrl.core.states import Manifest, StateRef
from plexrl.errors import StateError

_NUMPY_DTYPES = {"bfloat16": "uint16"} | {
    dtype: "uint8" for dtype in DTYPE_BYTES if dtype.startswith("float8_")
}
"""Torch dtypes that numpy lacks → the unsigned integers that hold their bytes."""

Index = tuple[slice, ...]
"""One slice per leading dimension; dimensions not named are whole."""


class RangeReader(Protocol):
    """What a store must do for `read_slices`; `ZarrStore` is one."""

    def manifest(self, ref: StateRef) -> Manifest:
        """Manifest of a version."""
        ...

    def read_ranges(
        self, ref: StateRef, ranges: Sequence[tuple[int, int]], into: memoryview
    ) -> int:
        """Read byte ranges, verified."""
        ...


def numpy_dtype(dtype: str) -> np.dtype[np.generic]:
    """Dtype of the array that holds a tensor of a torch dtype."""
    return np.dtype(_NUMPY_DTYPES.get(dtype, dtype))


def slot_of(layout: StateLayout, name: str) -> TensorSlot:
    """The slot of a tensor.

    Raises
    ------
    StateError
        The layout has no such tensor.
    """
    for slot in layout.slots:
        if slot.name == name:
            return slot
    names = ", ".join(slot.name for slot in layout.slots[:4])
    raise StateError(f"no tensor is called {name!r}; the state has {names}, …")


def shard(extent: int, index: int, num_shards: int) -> slice:
    """Part `index` of `num_shards` of a dimension, as torch's FSDP cuts it (ceiling division)."""
    size = -(-extent // num_shards)
    return slice(min(index * size, extent), min((index + 1) * size, extent))


def _bounds(slot: TensorSlot, index: Index) -> tuple[tuple[int, int], ...]:
    if len(index) > len(slot.shape) or any(part.step not in {None, 1} for part in index):
        raise StateError(
            f"{slot.name} of shape {list(slot.shape)} cannot be cut by {index}; give at most one "
            "slice of step 1 per dimension"
        )
    whole = index + (slice(None),) * (len(slot.shape) - len(index))
    parts = (part.indices(extent) for part, extent in zip(whole, slot.shape, strict=True))
    return tuple((start, max(start, stop)) for start, stop, _ in parts)


def covering_range(slot: TensorSlot, index: Index) -> tuple[int, int]:
    """Bytes from the first to the last row that a slice of a tensor needs."""
    bounds = _bounds(slot, index)
    if not bounds:
        return slot.offset, slot.offset + slot.nbytes
    row_nbytes = slot.nbytes // slot.shape[0] if slot.shape[0] else 0
    start, stop = bounds[0]
    return slot.offset + start * row_nbytes, slot.offset + stop * row_nbytes


def _cut(slot: TensorSlot, index: Index, raw: memoryview) -> NDArray[np.generic]:
    bounds = _bounds(slot, index)
    array = np.frombuffer(raw, numpy_dtype(slot.dtype))
    assert array.nbytes % DTYPE_BYTES[slot.dtype] == 0
    if not bounds:
        return array.reshape(())
    rows = array.reshape(bounds[0][1] - bounds[0][0], *slot.shape[1:])
    return np.ascontiguousarray(rows[(slice(None), *(slice(a, b) for a, b in bounds[1:]))])


def read_slices(
    store: RangeReader, ref: StateRef, wanted: Mapping[str, Index]
) -> dict[str, NDArray[np.generic]]:
    """Read slices of tensors of a version, verified; only the rows they need are read.

    Parameters
    ----------
    wanted
        Tensor name → slice per leading dimension; ``()`` is the whole tensor. Slices of the
        first dimension cost what they hold; slices of later ones cost their whole rows.

    Returns
    -------
    dict
        Tensor name → array of the slice's shape. bfloat16 comes as uint16, float8 as uint8,
        byte for byte.

    Raises
    ------
    IntegrityError
        Bytes are not as they were written.
    StateError
        A tensor is unknown, or a slice does not fit it.
    """
    layout = store.manifest(ref).layout
    slots = {name: slot_of(layout, name) for name in wanted}
    ranges = [covering_range(slots[name], index) for name, index in wanted.items()]
    buffer = memoryview(bytearray(sum(stop - start for start, stop in ranges)))
    store.read_ranges(ref, ranges, buffer)
    found: dict[str, NDArray[np.generic]] = {}
    offset = 0
    for (name, index), (start, stop) in zip(wanted.items(), ranges, strict=True):
        found[name] = _cut(slots[name], index, buffer[offset : offset + stop - start])
        offset += stop - start
    return found
