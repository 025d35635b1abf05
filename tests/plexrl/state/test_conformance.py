"""What every durable tier promises, checked on each: a folder, files as objects, S3."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import zarr

from plexrl.core.states import StateRef, Tier
from plexrl.errors import IntegrityError, StateError, StoreError
from plexrl.state.checksums import digest_of
from plexrl.state.manager import StateManager
from plexrl.state.object_store import ObjectStore
from plexrl.state.opening import open_store
from plexrl.state.zarr_store import ZarrStore
from tests.plexrl.state.backends import (
    FolderBackend,
    ObjectBackend,
    object_folder,
    s3_options,
    s3_server,
)

BACKENDS = ["folder", "url", pytest.param("s3", marks=pytest.mark.slow)]
REF = StateRef("job", "actor", 0)


@pytest.fixture(scope="module")
def endpoint():
    pytest.importorskip("obstore", reason="needs obstore (plexrl[remote])")
    with s3_server() as url:
        yield url


@pytest.fixture(params=BACKENDS)
def backend(request, tmp_path):
    if request.param == "folder":
        return FolderBackend(tmp_path / "store")
    if request.param == "url":
        pytest.importorskip("obstore", reason="needs obstore (plexrl[remote])")
        return object_folder(tmp_path / "store")
    options = s3_options(request.getfixturevalue("endpoint"))
    return ObjectBackend(f"s3://states/{tmp_path.name}", options)


@pytest.fixture
def opened(backend):
    with backend.open() as store:
        yield store


def read_back(store, ref, nbytes):
    into = memoryview(bytearray(nbytes))
    return store.read(ref, into), into


def test_a_version_reads_back_with_its_manifest(opened, states):
    manifest, view = states.make()
    assert not opened.contains(manifest.ref)
    assert opened.write(manifest, view) > len(view)
    assert opened.contains(manifest.ref)
    held, into = read_back(opened, manifest.ref, len(view))
    assert into == view
    assert held.layout == manifest.layout
    assert held.digest == opened.manifest(REF).digest == manifest.digest
    assert np.isnan(held.metrics["loss"])


def test_a_second_reader_sees_what_is_committed(backend, opened, states):
    manifest, view = states.make()
    opened.write(manifest, view)
    opened.release_job("job")
    with backend.open() as other:
        assert read_back(other, manifest.ref, len(view))[1] == view
        assert other.jobs() == ("job",)
        assert other.models("job") == ("actor",)


def test_byte_ranges_are_read_alone(opened, states):
    manifest, view = states.make()
    opened.write(manifest, view)
    into = memoryview(bytearray(5000))
    opened.read_ranges(REF, [(4000, 8990), (0, 10)], into)
    assert bytes(into) == bytes(view[4000:8990]) + bytes(view[:10])


def test_versions_are_listed_and_the_newest_is_the_latest(opened, states):
    assert opened.versions("job", "actor") == ()
    assert opened.latest("job", "actor") is None
    for version in (0, 1, 3):
        opened.write(*states.make(version=version))
    opened.write(*states.make(model="critic"))
    assert opened.versions("job", "actor") == (0, 1, 3)
    assert opened.latest("job", "actor").ref.version == 3
    assert opened.models("job") == ("actor", "critic")


def test_a_version_never_changes_and_writing_it_again_is_harmless(opened, states):
    manifest, view = states.make()
    opened.write(manifest, view)
    assert opened.write(manifest, view) == 0
    _, changed = states.make(job="x")
    with pytest.raises(StoreError, match="never changes"):
        opened.write(states.manifest(manifest.ref, changed), changed)
    assert read_back(opened, manifest.ref, len(view))[1] == view


@pytest.mark.parametrize("damage", ["bit", "short", "missing"])
def test_damage_is_moved_aside_and_the_last_good_version_serves(backend, opened, states, damage):
    for version in range(2):
        opened.write(*states.make(version=version))
    bad = StateRef("job", "actor", 1)
    chunk = backend.chunks(opened, bad)[1]
    content = bytearray(backend.read(opened, chunk))
    content[10] ^= 8
    spoiled = {"bit": bytes(content), "short": bytes(content[:50]), "missing": None}[damage]
    backend.replace(opened, chunk, spoiled)
    with pytest.raises(IntegrityError, match="moved aside"):
        read_back(opened, bad, states.layout.nbytes)
    assert opened.versions("job", "actor") == (0,)
    assert opened.latest("job", "actor").ref.version == 0
    with pytest.raises(IntegrityError, match="damaged and moved aside"):
        opened.manifest(bad)
    manifest, view = states.make(version=1)
    opened.write(manifest, view)
    assert read_back(opened, bad, len(view))[1] == view


def test_bytes_that_changed_after_their_digest_are_not_committed(opened, states):
    manifest, view = states.make()
    view[0] ^= 1
    with pytest.raises(IntegrityError, match="changed after"):
        opened.write(manifest, view)
    assert opened.versions("job", "actor") == ()


def test_buffers_of_another_size_and_unknown_versions_are_refused(opened, states):
    manifest, view = states.make()
    opened.write(manifest, view)
    with pytest.raises(StateError, match="give a buffer of its layout"):
        read_back(opened, manifest.ref, len(view) - 1)
    with pytest.raises(StateError, match="its layout"):
        opened.write(manifest, view[:-1])
    with pytest.raises(StoreError, match=r"job/actor@3 is not in the store .* \[0\]"):
        opened.manifest(StateRef("job", "actor", 3))


def test_names_are_kept_whatever_they_are(opened, states):
    names = ["../up", ".hidden", "a/b", "ünï côde", "v00000001", "%41", "."]
    for name in names:
        opened.write(*states.make(job=name, model=name))
    assert opened.jobs() == tuple(sorted(names))
    for name in names:
        assert opened.models(name) == (name,)
        assert opened.versions(name, name) == (0,)


def test_retention_keeps_the_newest_versions(opened, states):
    for version in range(4):
        opened.write(*states.make(version=version))
    assert [ref.version for ref in opened.retain("job", "actor", 2)] == [0, 1]
    assert opened.versions("job", "actor") == (2, 3)
    with pytest.raises(StateError, match="at least 1"):
        opened.retain("job", "actor", 0)


def test_the_state_manager_keeps_its_states_there(opened, states):
    with StateManager(opened, host_budget_bytes=states.layout.nbytes) as manager:
        for job in "ab":
            arena = manager.allocate(StateRef(job, "actor", 0), states.layout)
            manifest = states.fill(StateRef(job, "actor", 0), arena.view)
            manager.commit(manifest, arena, durable=True)
        fetched = manager.fetch(StateRef("a", "actor", 0))
        assert fetched.source is Tier.STORE
        assert digest_of(fetched.arena.view) == fetched.manifest.digest
        manager.release(fetched.manifest.ref)


def spoil(backend, store, ref):
    chunk = backend.chunks(store, ref)[0]
    content = bytearray(backend.read(store, chunk))
    content[3] ^= 1
    backend.replace(store, chunk, bytes(content))


def test_a_check_names_damage_and_changes_nothing(backend, opened, states):
    for version in range(2):
        opened.write(*states.make(version=version))
    spoil(backend, opened, StateRef("job", "actor", 1))
    for _ in range(2):
        sound, damaged = opened.check()
        assert (sound.damage, sound.nbytes) == ("", states.layout.nbytes)
        assert "digest" in damaged.damage or "checksum" in damaged.damage
    assert opened.check(REF) == (sound,)
    assert opened.versions("job", "actor") == (0, 1)


def test_collecting_frees_old_and_damaged_versions_and_leaves_the_rest(backend, opened, states):
    for version in range(4):
        opened.write(*states.make(version=version))
    opened.write(*states.make(model="critic"))
    bad = StateRef("job", "actor", 3)
    spoil(backend, opened, bad)
    with pytest.raises(IntegrityError):
        read_back(opened, bad, states.layout.nbytes)
    assert opened.num_damaged == 1
    found = opened.collect("job", 2)
    assert [ref.version for ref in found.versions] == [0]
    assert len(found.quarantined) == 1
    assert found.nbytes > 2 * states.layout.nbytes
    assert backend.chunks(opened, bad) == []
    assert opened.versions("job", "actor") == (1, 2)
    assert opened.versions("job", "critic") == (0,)
    assert {finding.damage for finding in opened.check()} == {""}
    assert opened.collect("job", 2).nbytes == 0


def test_collecting_keeps_the_last_good_version_whatever_is_damaged(backend, opened, states):
    for version in range(4):
        opened.write(*states.make(version=version))
    for version in (2, 3):
        spoil(backend, opened, StateRef("job", "actor", version))
    found = opened.collect("job", 1)
    assert [ref.version for ref in found.versions] == [0]
    assert [ref.version for ref in found.moved_aside] == [3, 2]
    assert opened.versions("job", "actor") == (1,)
    assert opened.collect("job", 1).moved_aside == ()
    assert opened.check()[0].damage == ""


def test_a_job_is_written_by_one_process_at_a_time(backend, opened, states):
    opened.write(*states.make())
    with backend.open() as other:
        for change in (
            lambda: other.write(*states.make(version=1)),
            lambda: other.delete(REF),
            lambda: other.collect("job", 1),
        ):
            with pytest.raises(StoreError, match="claimed for writing"):
                change()
        other.write(*states.make(job="another"))
        opened.release_job("job")
        other.write(*states.make(version=1))


def test_a_store_of_another_format_is_refused(backend, opened, states):
    opened.write(*states.make())
    backend.mark(opened, b'{"format_version": 9}')
    with pytest.raises(StoreError, match=r"store of format 9, this PlexRL writes \d"):
        backend.open()
    backend.mark(opened, b"{")
    with pytest.raises(StoreError, match="cannot be read"):
        backend.open(read_only=True)


def test_a_store_that_is_not_there_cannot_be_read(backend):
    with pytest.raises(StoreError, match="no store at"):
        backend.open(read_only=True)


def test_a_read_only_store_changes_nothing(backend, opened, states):
    opened.write(*states.make())
    with backend.open(read_only=True) as reader:
        for change in (
            lambda: reader.write(*states.make(version=1)),
            lambda: reader.delete(REF),
            lambda: reader.collect("job", 1),
        ):
            with pytest.raises(StoreError, match="read-only"):
                change()
        spoil(backend, opened, REF)
        with pytest.raises(IntegrityError, match="use an older version"):
            read_back(reader, REF, states.layout.nbytes)
        assert reader.versions("job", "actor") == (0,)


@pytest.mark.slow
def test_of_two_writers_of_one_version_one_wins_whole(endpoint, tmp_path, states):
    backend = ObjectBackend(f"s3://states/{tmp_path.name}", s3_options(endpoint))
    one, two = states.make(), states.make(job="x")
    two = (states.manifest(REF, two[1]), two[1])

    def write(version):
        with backend.open() as store:
            try:
                store.write(*version)
            except StoreError as error:
                return str(error)
            return ""

    with ThreadPoolExecutor(2) as pool:
        told = list(pool.map(write, [one, two]))
    assert sorted(map(bool, told)) == [False, True]
    winner = (one, two)[told.index("")]
    with backend.open() as store:
        assert read_back(store, REF, len(winner[1]))[1] == winner[1]


@pytest.mark.slow
def test_plain_zarr_reads_a_version_from_the_bucket(endpoint, tmp_path, states):
    from obstore.store import S3Store
    from zarr.storage import ObjectStore as ZarrObjects

    backend = ObjectBackend(f"s3://states/{tmp_path.name}", s3_options(endpoint))
    manifest, view = states.make()
    with backend.open() as store:
        store.write(manifest, view)
    objects = S3Store(
        "states",
        prefix=f"{tmp_path.name}/job/actor/v00000000",
        config=s3_options(endpoint),
        client_options={"allow_http": True},
    )
    group = zarr.open_group(ZarrObjects(objects, read_only=True), mode="r")
    arrays = group.attrs["plexrl"]["arrays"]
    assert b"".join(group[name][:].tobytes() for name, *_ in arrays) == bytes(view)


@pytest.mark.slow
def test_a_bucket_that_is_missing_or_refuses_is_one_error(endpoint, states):
    with (
        ObjectBackend("s3://nobody/x", s3_options(endpoint)).open() as store,
        pytest.raises(StoreError, match="there is no such bucket"),
    ):
        store.write(*states.make())
    nowhere = s3_options("http://127.0.0.1:9") | {"retry_max": "0"}
    with pytest.raises(StoreError, match="give s3://"):
        ObjectBackend("s3://states/x", nowhere).open()


def test_a_folder_and_a_url_are_opened_by_what_they_are_called(tmp_path):
    with open_store(str(tmp_path / "s")) as store:
        assert isinstance(store, ZarrStore)
    with pytest.raises(StoreError, match="takes no options"):
        open_store(str(tmp_path / "s"), options={"region": "x"})
    pytest.importorskip("obstore", reason="needs obstore (plexrl[remote])")
    with open_store("memory://") as store:
        assert isinstance(store, ObjectStore)
    with pytest.raises(StoreError, match="no store can be opened at ftp://x"):
        open_store("ftp://x/y")


def test_without_obstore_a_url_says_what_to_install(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "obstore.store", None)
    with pytest.raises(StoreError, match=r"pip install 'plexrl\[remote\]'"):
        open_store("s3://bucket/x")
