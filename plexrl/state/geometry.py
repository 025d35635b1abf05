"""Where the bytes of an arena lie in Zarr arrays and chunk objects.

Each role of a layout is one contiguous byte range and becomes one 1-D uint8 array. An
array is cut into equal chunks; Zarr stores edge chunks at full size, so the chunk size is
chosen to leave almost no padding.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

import zarr
from zarr.codecs import Crc32cCodec
from zarr.storage import MemoryStore

from plexrl.core.layout import StateLayout
from plexrl.errors import StoreError

CHUNK_BYTES = 32 << 20
"""Upper size of a chunk object: large enough for the disk, small enough to share between
two threads (measured: 16 to 64 MB are alike)."""
SHARED_BYTES = 4 << 20
"""From this size on an array has two chunks at least: two threads that write into one file
wait for each other."""
CRC_BYTES = 4
_PAGE_BYTES = 4096
_SOME_FOLDER = "@"
"""Stands for the folder of an attempt: no array is called so, since roles are identifiers."""


@dataclass(frozen=True, slots=True)
class ChunkSpan:
    """Bytes of one chunk object."""

    key: str
    """Path below the group, e.g. ``weights/c.0``."""
    start: int
    """First byte in the arena."""
    stop: int
    pad_bytes: int
    """Zero bytes after the arena's, up to the chunk size."""

    @property
    def file_bytes(self) -> int:
        """Size of the chunk object: bytes, padding, checksum."""
        return self.stop - self.start + self.pad_bytes + CRC_BYTES


@dataclass(frozen=True, slots=True)
class ArraySpan:
    """Bytes of one Zarr array."""

    name: str
    """The role."""
    start: int
    """First byte in the arena."""
    nbytes: int
    chunk_bytes: int

    def chunks(self) -> Iterator[ChunkSpan]:
        """Its chunk objects, in order."""
        stop = self.start + self.nbytes
        for index, start in enumerate(range(self.start, stop, self.chunk_bytes)):
            end = min(stop, start + self.chunk_bytes)
            key = f"{self.name}/c.{index}"
            yield ChunkSpan(key, start, end, start + self.chunk_bytes - end)


def all_chunks(spans: Iterable[ArraySpan]) -> list[ChunkSpan]:
    """Chunk objects of arrays that lie one behind the other, in order."""
    return [chunk for span in spans for chunk in span.chunks()]


def _chunk_size(nbytes: int, limit: int) -> int:
    num_chunks = max(-(-nbytes // limit), 2 if nbytes >= SHARED_BYTES else 1)
    if num_chunks == 1:
        return nbytes
    even = -(-nbytes // num_chunks)
    return -(-even // _PAGE_BYTES) * _PAGE_BYTES


def array_spans(layout: StateLayout, chunk_bytes: int = CHUNK_BYTES) -> tuple[ArraySpan, ...]:
    """Arrays of a layout, which together cover its buffer without gap or overlap.

    Raises
    ------
    StoreError
        The roles of the layout interleave, or a role is no usable array name.
    """
    starts: dict[str, int] = {}
    last = None
    for slot in layout.slots:
        if slot.role == last:
            continue
        if slot.role in starts:
            raise StoreError(
                f"tensor {slot.name} of role {slot.role} lies behind role {last}; "
                "lay the tensors of a role out one behind the other"
            )
        if not slot.role.isidentifier():
            raise StoreError(f"role {slot.role!r} of tensor {slot.name} is no identifier")
        starts[slot.role] = slot.offset if starts else 0
        last = slot.role
    if layout.nbytes and not starts:
        raise StoreError(f"a layout of {layout.nbytes} bytes without tensors; name its tensors")
    if not starts:
        return ()
    stops = [*list(starts.values())[1:], layout.nbytes]
    return tuple(
        ArraySpan(role, start, stop - start, _chunk_size(stop - start, chunk_bytes))
        for (role, start), stop in zip(starts.items(), stops, strict=True)
        if stop > start
    )


def zarr_documents(spans: tuple[ArraySpan, ...]) -> Mapping[str, str]:
    """Metadata that zarr itself writes for these arrays: path below the group → JSON text.

    The root document ``zarr.json`` has consolidated metadata and no attributes. Arrays may lie in
    one folder below the group, whose name costs nothing: each attempt to write has its own.
    """
    folder = spans[0].name.rpartition("/")[0] if spans else ""
    if not folder:
        return _made_by_zarr(spans)
    some = tuple(replace(s, name=f"{_SOME_FOLDER}{s.name.removeprefix(folder)}") for s in spans)
    return {
        path.replace(_SOME_FOLDER, folder): text.replace(f'"{_SOME_FOLDER}', f'"{folder}')
        for path, text in _made_by_zarr(some).items()
    }


@lru_cache(maxsize=64)
def _made_by_zarr(spans: tuple[ArraySpan, ...]) -> Mapping[str, str]:
    entries: dict[str, object] = {}
    store = MemoryStore(entries)  # type: ignore[arg-type,unused-ignore]
    group = zarr.create_group(store=store)
    for span in spans:
        group.create_array(
            span.name,
            shape=(span.nbytes,),
            chunks=(span.chunk_bytes,),
            dtype="uint8",
            compressors=[Crc32cCodec()],
            filters=None,
            fill_value=0,
            # Chunks beside the array's metadata: a folder less to make and to sync.
            chunk_key_encoding={"name": "default", "separator": "."},
        )
    with warnings.catch_warnings():
        # Consolidated metadata is not yet in the Zarr 3 text; readers without it skip it.
        warnings.simplefilter("ignore")
        zarr.consolidate_metadata(store)
    return {
        path: json.dumps(json.loads(entry.to_bytes()), indent=1)  # type: ignore[attr-defined]
        for path, entry in entries.items()
    }
