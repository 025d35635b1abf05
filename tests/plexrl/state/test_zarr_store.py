"""The store's contract: what is committed is there, whole, and what is damaged is found."""

import os

import numpy as np
import pytest
import zarr

from plexrl.core.layout import DTYPE_BYTES, pack
from plexrl.core.states import Manifest, StateRef
from plexrl.errors import IntegrityError, StateError, StoreError
from plexrl.state import record
from plexrl.state.arena import Arena
from plexrl.state.checksums import GRAIN_BYTES, digest_of
from plexrl.state.geometry import array_spans
from plexrl.state.zarr_store import ZarrStore


def read_back(store, ref, nbytes):
    into = memoryview(bytearray(nbytes))
    return store.read(ref, into), into


def version_folder(store, ref):
    return store.root / ref.job / ref.model / f"v{ref.version:08d}"


def flip(path, position=0):
    content = bytearray(path.read_bytes())
    content[position] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("durable", [True, False])
def test_a_version_reads_back_with_its_manifest(tmp_path, states, durable):
    manifest, view = states.make()
    with ZarrStore(tmp_path / "s", durable=durable) as store:
        written = store.write(manifest, view)
        held, into = read_back(store, manifest.ref, len(view))
    assert into == view
    assert written > len(view)
    assert held.ref == manifest.ref
    assert held.layout == manifest.layout
    assert np.isnan(held.metrics["loss"])
    assert held.metrics["reward"] == 0.5
    assert (held.data_cursor, held.seed, held.created_unix_s) == (0, 3, 12.5)


def test_every_dtype_survives_byte_for_byte(store):
    layout = pack(
        [(f"w/{name}", "weights", name, (3, 5)) for name in DTYPE_BYTES]
        + [(f"m/{name}", "optimizer", name, (7,)) for name in DTYPE_BYTES]
    )
    data = np.random.default_rng(0).integers(0, 256, layout.nbytes, dtype=np.uint8)
    view = memoryview(data.tobytes())
    manifest = Manifest(StateRef("j", "m", 0), layout, digest_of(view), 0, 0, 0, 0)
    store.write(manifest, view)
    held, into = read_back(store, manifest.ref, layout.nbytes)
    assert into == view
    assert held.layout.slots == layout.slots


@pytest.mark.parametrize("chunk_bytes", [1 << 16, GRAIN_BYTES // 2, 3 * GRAIN_BYTES, 32 << 20])
def test_chunks_and_grains_need_not_match(tmp_path, chunk_bytes):
    layout = pack(
        [("w", "weights", "uint8", (GRAIN_BYTES + 12345,)), ("m", "optimizer", "uint8", (1234567,))]
    )
    data = np.random.default_rng(1).integers(0, 256, layout.nbytes, dtype=np.uint8)
    view = memoryview(data)
    manifest = Manifest(StateRef("j", "m", 0), layout, digest_of(view), 0, 0, 0, 0)
    with ZarrStore(tmp_path / "s", durable=False, chunk_bytes=chunk_bytes) as store:
        store.write(manifest, view)
        _, into = read_back(store, manifest.ref, layout.nbytes)
        assert into == view
        group = zarr.open_group(version_folder(store, manifest.ref), mode="r")
    for span in array_spans(layout, chunk_bytes):
        found = group[span.name][:]
        assert np.array_equal(found, data[span.start : span.start + span.nbytes])


@pytest.mark.parametrize("num_bytes", [1, (3 << 18) - 1, 3 << 18, 1 << 20, 3 << 20, (9 << 20) + 5])
def test_every_byte_is_read_once_and_verified_however_a_chunk_is_cut(tmp_path, num_bytes):
    layout = pack([("w", "weights", "uint8", (num_bytes,))])
    view = memoryview(np.random.default_rng(2).bytes(layout.nbytes))
    manifest = Manifest(StateRef("j", "m", 0), layout, digest_of(view), 0, 0, 0, 0)
    for position in (0, num_bytes // 2, num_bytes - 1):
        with ZarrStore(tmp_path / str(position), durable=False, chunk_bytes=4 << 20) as store:
            store.write(manifest, view)
            into = memoryview(bytearray(layout.nbytes))
            store.read(manifest.ref, into)
            assert into == view
            (span,) = array_spans(layout, 4 << 20)
            flip(
                version_folder(store, manifest.ref) / f"weights/c.{position // span.chunk_bytes}",
                position % span.chunk_bytes,
            )
            with pytest.raises(IntegrityError, match="does not match its checksum"):
                store.read(manifest.ref, into)


def test_manifests_of_one_checksum_are_told_apart(store, states, monkeypatch):
    monkeypatch.setattr(record, "crc32c", lambda _: 7)
    made = [states.make(version=version)[0] for version in (0, 1)]
    for manifest in made:
        store.write(manifest, states.make(version=manifest.ref.version)[1])
    for _ in range(2):
        assert [store.manifest(manifest.ref).digest for manifest in made] == [
            manifest.digest for manifest in made
        ]


def test_plain_zarr_reads_the_arrays_and_the_manifest(store, states):
    manifest, view = states.make()
    store.write(manifest, view)
    group = zarr.open(version_folder(store, manifest.ref), mode="r")
    weights = group["weights"][:].tobytes()
    optimizer = group["optimizer"][:].tobytes()
    assert weights + optimizer == bytes(view)
    assert group.attrs["plexrl"]["manifest"]["digest"] == manifest.digest
    assert set(group.metadata.consolidated_metadata.metadata) == {"weights", "optimizer"}


@pytest.mark.parametrize("position", [0, 1000, -1])
def test_a_flipped_bit_is_caught_by_this_reader_and_by_plain_zarr(store, states, position):
    manifest, view = states.make()
    store.write(manifest, view)
    flip(version_folder(store, manifest.ref) / "weights" / "c.1", position)
    group = zarr.open_group(version_folder(store, manifest.ref), mode="r")
    with pytest.raises(ValueError, match="checksum"):
        group["weights"][:]
    with pytest.raises(IntegrityError, match=r"weights/c\.1 does not match"):
        read_back(store, manifest.ref, len(view))


def test_damage_is_moved_aside_and_the_last_good_version_serves(store, states):
    for version in range(2):
        store.write(*states.make(version=version))
    damaged = StateRef("job", "actor", 1)
    flip(version_folder(store, damaged) / "optimizer" / "c.0", 5)
    with pytest.raises(IntegrityError, match="moved aside"):
        read_back(store, damaged, states.layout.nbytes)
    assert store.versions("job", "actor") == (0,)
    assert store.latest("job", "actor").ref.version == 0
    with pytest.raises(IntegrityError, match="damaged and moved aside"):
        store.manifest(damaged)
    manifest, view = states.make(version=1)
    store.write(manifest, view)
    assert read_back(store, damaged, len(view))[1] == view


def test_a_damaged_manifest_is_skipped_by_latest(store, states):
    for version in range(2):
        store.write(*states.make(version=version))
    path = version_folder(store, StateRef("job", "actor", 1)) / "zarr.json"
    path.write_text(path.read_text().replace('"data_cursor":8', '"data_cursor":9'))
    assert store.latest("job", "actor").ref.version == 0
    assert store.versions("job", "actor") == (0,)


def test_a_missing_chunk_is_damage(store, states):
    manifest, view = states.make()
    store.write(manifest, view)
    (version_folder(store, manifest.ref) / "weights" / "c.0").unlink()
    with pytest.raises(IntegrityError, match=r"weights/c\.0 is missing"):
        read_back(store, manifest.ref, len(view))


def test_a_short_chunk_is_damage(store, states):
    manifest, view = states.make()
    store.write(manifest, view)
    path = version_folder(store, manifest.ref) / "weights" / "c.0"
    os.truncate(path, 100)
    with pytest.raises(IntegrityError, match="has 100 bytes, written were"):
        read_back(store, manifest.ref, len(view))


def test_a_manifest_in_the_wrong_place_is_damage(store, states):
    manifest, view = states.make()
    store.write(manifest, view)
    moved = StateRef("job", "actor", 5)
    version_folder(store, manifest.ref).rename(version_folder(store, moved))
    with pytest.raises(IntegrityError, match="manifest is that of job/actor@0"):
        read_back(store, moved, len(view))


def test_a_read_only_store_reports_damage_and_changes_nothing(store, states):
    manifest, view = states.make()
    store.write(manifest, view)
    flip(version_folder(store, manifest.ref) / "weights" / "c.0")
    with ZarrStore(store.root, read_only=True) as reader:
        with pytest.raises(IntegrityError):
            read_back(reader, manifest.ref, len(view))
        assert reader.versions("job", "actor") == (0,)
        with pytest.raises(StoreError, match="read-only"):
            reader.write(*states.make(version=1))


def test_bytes_that_changed_after_their_digest_are_not_committed(store, states):
    manifest, view = states.make()
    view[0] ^= 1
    with pytest.raises(IntegrityError, match="changed after its digest"):
        store.write(manifest, view)
    assert store.versions("job", "actor") == ()


def test_a_version_never_changes_and_writing_it_again_is_harmless(store, states):
    manifest, view = states.make()
    store.write(manifest, view)
    assert store.write(manifest, view) == 0
    other, changed = states.make(job="x")
    other = states.manifest(manifest.ref, changed)
    with pytest.raises(StoreError, match="never changes"):
        store.write(other, changed)
    assert read_back(store, manifest.ref, len(view))[1] == view


def test_a_buffer_of_another_size_is_refused(store, states):
    manifest, view = states.make()
    store.write(manifest, view)
    with pytest.raises(StateError, match="give a buffer of its layout"):
        read_back(store, manifest.ref, len(view) - 1)
    with pytest.raises(StateError, match="its layout"):
        store.write(manifest, view[:-1])


def test_an_unknown_version_is_named_with_those_that_exist(store, states):
    store.write(*states.make(version=4))
    with pytest.raises(StoreError, match=r"job/actor@3 is not in the store .* \[4\]"):
        store.manifest(StateRef("job", "actor", 3))
    assert store.latest("job", "critic") is None


def test_jobs_models_and_versions_are_listed_under_their_own_names(store, states):
    names = ["../up", ".hidden", "a/b", "ünï côde", "v00000001", "%41", "."]
    for name in names:
        store.write(*states.make(job=name, model=name))
    assert store.jobs() == tuple(sorted(names))
    for name in names:
        assert store.models(name) == (name,)
        assert store.versions(name, name) == (0,)
    assert all(path.parent == store.root for path in store.root.iterdir())


@pytest.mark.parametrize("name", ["", "x" * 300])
def test_an_impossible_name_is_refused(store, states, name):
    with pytest.raises(StoreError, match="give a name of 1 to"):
        store.write(*states.make(job=name))


def test_retention_spares_a_version_that_is_being_read(store, states, monkeypatch):
    for version in range(2):
        store.write(*states.make(version=version))
    ref = StateRef("job", "actor", 0)
    deleted = []
    from plexrl.state import zarr_store

    read_bytes = zarr_store.read_bytes

    def delete_meanwhile(*arguments):
        deleted.extend(store.retain("job", "actor", 1))
        read_bytes(*arguments)

    monkeypatch.setattr(zarr_store, "read_bytes", delete_meanwhile)
    read_back(store, ref, states.layout.nbytes)
    assert deleted == []
    assert store.versions("job", "actor") == (0, 1)
    assert store.retain("job", "actor", 1) == (ref,)


def test_deleting_a_version_twice_is_harmless(store, states):
    manifest, view = states.make()
    store.write(manifest, view)
    assert store.delete(manifest.ref)
    assert store.delete(manifest.ref)
    assert store.versions("job", "actor") == ()


def inodes(folder):
    return {path.name: path.stat().st_ino for path in (folder / "weights").glob("c.*")}


@pytest.mark.parametrize("durable", [True, False])
def test_a_version_is_written_over_the_files_of_a_deleted_one(tmp_path, states, durable):
    with ZarrStore(tmp_path, durable=durable, chunk_bytes=4096) as store:
        for version in range(2):
            store.write(*states.make(version=version))
        old = inodes(version_folder(store, StateRef("job", "actor", 0)))
        store.delete(StateRef("job", "actor", 0))
        manifest, view = states.make(version=2)
        store.write(manifest, view)
        assert inodes(version_folder(store, manifest.ref)) == old
        assert read_back(store, manifest.ref, len(view))[1] == view
        assert [finding.damage for finding in store.check()] == ["", ""]
        group = zarr.open_group(version_folder(store, manifest.ref), mode="r")
        assert group["weights"][:].tobytes() + group["optimizer"][:].tobytes() == bytes(view)
        with pytest.raises(StoreError, match=r"it holds versions \[1, 2\]"):
            store.manifest(StateRef("job", "actor", 0))


def test_files_that_somebody_linked_elsewhere_are_not_written_over(store, states, tmp_path):
    manifest, view = states.make()
    store.write(manifest, view)
    chunk = version_folder(store, manifest.ref) / "weights" / "c.0"
    (tmp_path / "kept").hardlink_to(chunk)
    content = chunk.read_bytes()
    store.delete(manifest.ref)
    store.write(*states.make(version=1))
    assert (tmp_path / "kept").read_bytes() == content
    assert store.check()[0].damage == ""


def test_a_state_of_another_layout_is_written_anew(store, states):
    manifest, view = states.make()
    store.write(manifest, view)
    store.delete(manifest.ref)
    layout = pack([("w", "weights", "int8", (9,))])
    other = memoryview(bytes(range(64)))
    ref = StateRef("job", "actor", 1)
    store.write(Manifest(ref, layout, digest_of(other), 0, 0, 0, 0), other)
    assert read_back(store, ref, 64)[1] == other
    assert [path.name for path in (store.root / "job" / "actor").iterdir()] == ["v00000001"]


@pytest.mark.parametrize("end", ["close", "release_job", "collect"])
def test_nothing_of_a_deleted_version_stays_once_its_job_rests(tmp_path, states, end):
    store = ZarrStore(tmp_path, durable=False)
    for version in range(3):
        store.write(*states.make(version=version))
    store.retain("job", "actor", 1)
    {
        "close": store.close,
        "release_job": lambda: store.release_job("job"),
        "collect": lambda: store.collect("job", 1),
    }[end]()
    assert [path.name for path in (tmp_path / "job" / "actor").iterdir()] == ["v00000002"]
    store.close()


def test_check_reports_damage_and_changes_nothing(store, states):
    for version in range(2):
        store.write(*states.make(version=version))
    flip(version_folder(store, StateRef("job", "actor", 0)) / "weights" / "c.0")
    findings = store.check()
    assert [bool(finding.damage) for finding in findings] == [True, False]
    assert "weights/c.0" in findings[0].damage
    assert store.versions("job", "actor") == (0, 1)
    assert store.check(StateRef("job", "actor", 1))[0].damage == ""


def test_interleaved_roles_are_refused(store):
    layout = pack([(str(i), ("weights", "optimizer")[i % 2], "int8", (64,)) for i in range(3)])
    view = memoryview(bytes(layout.nbytes))
    manifest = Manifest(StateRef("j", "m", 0), layout, digest_of(view), 0, 0, 0, 0)
    with pytest.raises(StoreError, match="lies behind role"):
        store.write(manifest, view)


def test_a_state_without_optimizer_and_one_without_bytes_are_stored(store):
    for number, tensors in enumerate(([("w", "weights", "int8", (9,))], [])):
        layout = pack(tensors)
        arena = Arena(layout.nbytes)
        manifest = Manifest(StateRef("j", "m", number), layout, digest_of(arena.view), 0, 0, 0, 0)
        store.write(manifest, arena.view)
        assert read_back(store, manifest.ref, layout.nbytes)[1] == arena.view
        arena.close()


def test_padding_of_edge_chunks_stays_below_a_page_each():
    layout = pack([("w", "weights", "uint8", (10_000_001,))])
    (span,) = array_spans(layout, 1 << 20)
    chunks = list(span.chunks())
    assert sum(chunk.stop - chunk.start for chunk in chunks) == layout.nbytes
    assert sum(chunk.pad_bytes for chunk in chunks) < 4096 * len(chunks)
    assert all(chunk.file_bytes == span.chunk_bytes + 4 for chunk in chunks)
