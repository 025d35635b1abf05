"""What the root document of a stored version says, protected by a checksum of its own."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from threading import Lock

import numpy as np

from plexrl.core.layout import StateLayout
from plexrl.core.states import Manifest, StateRef
from plexrl.errors import IntegrityError
from plexrl.state.checksums import GRAIN_BYTES, crc32c, digest_of_grains
from plexrl.state.geometry import ArraySpan, ChunkSpan, all_chunks, zarr_documents

ATTRIBUTE = "plexrl"
"""Key of the group's attributes that holds all of the below."""
_PLACE = "plexrl-body"
_NUM_REMEMBERED = 16
_NUM_LAYOUTS = 16
_NO_LAYOUT = '"layout":null'
_NON_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


@dataclass(frozen=True, slots=True)
class VersionRecord:
    """A stored version: its manifest and where its bytes lie."""

    manifest: Manifest
    spans: tuple[ArraySpan, ...]
    grains: tuple[int, ...]
    """`grain_checksums` of the whole state."""
    checksums: tuple[int, ...]
    """`chunk_checksum` of every chunk object, in order."""

    chunks: tuple[ChunkSpan, ...] = field(init=False)
    """Its chunk objects, in order."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "chunks", tuple(all_chunks(self.spans)))


_lock = Lock()
_layout_texts: dict[int, tuple[StateLayout, str]] = {}
"""Layout texts by identity (each keeps its layout alive): one serves all versions of a model."""


def _layout_text(layout: StateLayout) -> str:
    with _lock:
        held = _layout_texts.get(id(layout))
        if held is None:
            held = layout, _canonical(layout.to_json())
            _layout_texts[id(layout)] = held
            while len(_layout_texts) > _NUM_LAYOUTS:
                del _layout_texts[next(iter(_layout_texts))]
    return held[1]


def _number_to_json(value: float) -> float | str:
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _number_from_json(value: float | str) -> float:
    return _NON_FINITE[value] if isinstance(value, str) else float(value)


def _facts_to_json(manifest: Manifest) -> dict[str, object]:
    """A manifest as JSON types, without its layout; numbers that JSON lacks become their names."""
    return {
        "job": manifest.ref.job,
        "model": manifest.ref.model,
        "version": manifest.ref.version,
        "digest": manifest.digest,
        "iteration": manifest.iteration,
        "optimizer_steps": manifest.optimizer_steps,
        "data_cursor": manifest.data_cursor,
        "seed": manifest.seed,
        "metrics": {name: _number_to_json(value) for name, value in manifest.metrics.items()},
        "created_unix_s": manifest.created_unix_s,
    }


def manifest_from_json(data: Mapping[str, object]) -> Manifest:
    """The manifest of a document's body."""
    values = dict(data)
    ref = StateRef(str(values.pop("job")), str(values.pop("model")), values.pop("version"))  # type: ignore[arg-type]
    layout = StateLayout.from_json(values.pop("layout"))  # type: ignore[arg-type]
    metrics = {k: _number_from_json(v) for k, v in values.pop("metrics").items()}  # type: ignore[attr-defined]
    return Manifest(ref=ref, layout=layout, metrics=metrics, **values)  # type: ignore[arg-type]


def _canonical(body: Mapping[str, object]) -> str:
    return json.dumps(body, sort_keys=True, separators=(",", ":"), allow_nan=False)


def _checksum(canonical: str) -> str:
    return f"{crc32c(canonical.encode()):08x}"


_remembered: dict[int, tuple[bytes, VersionRecord]] = {}
"""Documents by checksum, which takes a tenth of the time of Python's hash."""


def _remember(document: bytes, record: VersionRecord) -> None:
    """Spare the parsing, a third of reading a small state, where the bytes are the same."""
    with _lock:
        _remembered[crc32c(document)] = document, record
        while len(_remembered) > _NUM_REMEMBERED:
            del _remembered[next(iter(_remembered))]


def record_to_document(record: VersionRecord) -> bytes:
    """The root ``zarr.json`` of a version."""
    body: dict[str, object] = {
        "manifest": {**_facts_to_json(record.manifest), "layout": None},
        "arrays": [[s.name, s.start, s.nbytes, s.chunk_bytes] for s in record.spans],
        "grain_bytes": GRAIN_BYTES,
        "grains": _hex(record.grains),
        "chunks": _hex(record.checksums),
    }
    # Spliced, not serialised again: that is what takes time where tensors are many. Inside a
    # JSON text every quote is escaped, so that no name can look like the place of the layout.
    layout = _layout_text(record.manifest.layout)
    text = _canonical(body).replace(_NO_LAYOUT, f'"layout":{layout}', 1)
    body_text = f'{text[:-1]},"crc32c":"{_checksum(text)}"}}'
    document = _frame(record.spans).replace(json.dumps(_PLACE), body_text, 1).encode()
    _remember(document, record)
    return document


@lru_cache(maxsize=64)
def _frame(spans: tuple[ArraySpan, ...]) -> str:
    """The document of these arrays, with a place for what it says of the version."""
    root = json.loads(zarr_documents(spans)["zarr.json"])
    root["attributes"] = {ATTRIBUTE: _PLACE}
    return json.dumps(root, separators=(",", ":"))


def _hex(checksums: Sequence[int]) -> str:
    return np.asarray(checksums, "<u4").tobytes().hex()


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(np.frombuffer(bytes.fromhex(text), "<u4").tolist())


def record_from_document(document: bytes) -> VersionRecord:
    """Inverse of `record_to_document`.

    Raises
    ------
    IntegrityError
        It is no such document, or not as it was written.
    """
    known = _remembered.get(crc32c(document))
    if known is not None and known[0] == document:
        return known[1]
    record = _parse(document)
    _remember(document, record)
    return record


def _parse(document: bytes) -> VersionRecord:
    try:
        body = dict(json.loads(document)["attributes"][ATTRIBUTE])
        expected = body.pop("crc32c")
        found = _checksum(_canonical(body))
    except (ValueError, KeyError, TypeError) as error:
        raise IntegrityError(f"its zarr.json cannot be read ({error})") from error
    if found != expected:
        raise IntegrityError(f"its manifest has checksum {found}, written was {expected}")
    spans = tuple(ArraySpan(*row) for row in body["arrays"])
    manifest, grains = manifest_from_json(body["manifest"]), _numbers(body["grains"])
    if digest_of_grains(grains, manifest.layout.nbytes) != manifest.digest:
        raise IntegrityError("its checksums do not have the digest of its manifest")
    return VersionRecord(manifest, spans, grains, _numbers(body["chunks"]))
