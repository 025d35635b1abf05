"""Zarr's own metadata, made once for arrays of one shape wherever they lie."""

import json

import zarr
from zarr.core.buffer import default_buffer_prototype
from zarr.storage import MemoryStore

from plexrl.state import geometry
from plexrl.state.geometry import ArraySpan, zarr_documents


def spans(folder):
    return (
        ArraySpan(f"{folder}weights", 0, 12345, 8192),
        ArraySpan(f"{folder}optimizer", 12345, 77, 77),
    )


def test_arrays_in_a_folder_have_the_metadata_that_zarr_wants():
    documents = zarr_documents(spans("w0123abc/"))
    buffer = default_buffer_prototype().buffer
    entries = {path: buffer.from_bytes(text.encode()) for path, text in documents.items()}
    group = zarr.open_group(MemoryStore(entries), mode="r")
    assert group["w0123abc/weights"].shape == (12345,)
    assert group["w0123abc/optimizer"].chunks == (77,)
    consolidated = json.loads(documents["zarr.json"])["consolidated_metadata"]["metadata"]
    assert set(consolidated) == {"w0123abc", "w0123abc/weights", "w0123abc/optimizer"}


def test_another_folder_needs_no_work_of_zarr(monkeypatch):
    before = zarr_documents(spans("first/"))
    monkeypatch.delattr(geometry, "zarr")
    after = zarr_documents(spans("second/"))
    assert {
        path.replace("second", "first"): text.replace("second", "first")
        for path, text in after.items()
    } == before
