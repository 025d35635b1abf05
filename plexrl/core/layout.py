"""How the tensors of a state lie in one contiguous buffer."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

ALIGNMENT_BYTES = 64
"""Every tensor starts at a multiple of this: a cache line, and wider than any vector load."""

ROLE_WEIGHTS = "weights"
ROLE_OPTIMIZER = "optimizer"

DTYPE_BYTES = {
    "float64": 8,
    "float32": 4,
    "bfloat16": 2,
    "float16": 2,
    "float8_e4m3fn": 1,
    "float8_e5m2": 1,
    "float8_e4m3fnuz": 1,
    "float8_e5m2fnuz": 1,
    "float8_e8m0fnu": 1,
    "int64": 8,
    "int32": 4,
    "int16": 2,
    "int8": 1,
    "uint64": 8,
    "uint32": 4,
    "uint16": 2,
    "uint8": 1,
    "bool": 1,
}
"""Torch dtype name → bytes per element."""


@dataclass(frozen=True, slots=True)
class TensorSlot:
    """Place of one tensor in the buffer."""

    name: str
    """Unique in the layout, e.g. ``model.norm.weight`` or ``exp_avg/model.norm.weight``."""
    role: str
    """`ROLE_WEIGHTS` or `ROLE_OPTIMIZER`."""
    dtype: str
    """Torch dtype name without the ``torch.`` prefix; a key of `DTYPE_BYTES`."""
    shape: tuple[int, ...]
    offset: int
    """Byte offset from the start of the buffer."""
    nbytes: int


@dataclass(frozen=True, slots=True)
class StateLayout:
    """Index of a state: slots in order of offset, weights before optimizer."""

    slots: tuple[TensorSlot, ...]
    nbytes: int
    """Size of the buffer, a multiple of `ALIGNMENT_BYTES`."""

    def role(self, role: str) -> tuple[TensorSlot, ...]:
        """The slots of one role, in order."""
        return tuple(slot for slot in self.slots if slot.role == role)

    def to_json(self) -> dict[str, object]:
        """The layout as JSON types."""
        return {
            "nbytes": self.nbytes,
            "slots": [
                [s.name, s.role, s.dtype, list(s.shape), s.offset, s.nbytes] for s in self.slots
            ],
        }

    @staticmethod
    def from_json(data: dict[str, object]) -> StateLayout:
        """Inverse of `to_json`."""
        rows = data["slots"]
        assert isinstance(rows, list)
        slots = tuple(TensorSlot(n, r, d, tuple(s), o, b) for n, r, d, s, o, b in rows)
        nbytes = data["nbytes"]
        assert isinstance(nbytes, int)
        return StateLayout(slots, nbytes)


def pack(tensors: Iterable[tuple[str, str, str, tuple[int, ...]]]) -> StateLayout:
    """Lay tensors out one behind the other, each aligned to `ALIGNMENT_BYTES`.

    Parameters
    ----------
    tensors
        ``(name, role, dtype, shape)`` in the order they shall lie.
    """
    slots: list[TensorSlot] = []
    offset = 0
    for name, role, dtype, shape in tensors:
        nbytes = DTYPE_BYTES[dtype]
        for extent in shape:
            nbytes *= extent
        slots.append(TensorSlot(name, role, dtype, shape, offset, nbytes))
        offset += -(-nbytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
    return StateLayout(tuple(slots), offset)
