"""Faults in mid-commit: the version does not exist then, and the one before reads."""

import errno
import os
import resource
import signal
import subprocess
import sys

import pytest

from plexrl.core.states import StateRef
from plexrl.errors import StoreError
from plexrl.state import files
from plexrl.state.zarr_store import ZarrStore

_KILLED_WRITER = """
import os, signal, sys
from plexrl.core.layout import pack
from plexrl.core.states import Manifest, StateRef
from plexrl.state import files
from plexrl.state.checksums import digest_of
from plexrl.state.zarr_store import ZarrStore

root, deadly = sys.argv[1], int(sys.argv[2])
layout = pack([("w", "weights", "uint8", (20000,)), ("m", "optimizer", "uint8", (9000,))])
count = 0

def deadly_step(work):
    def step(*arguments, **settings):
        global count
        count += 1
        if count == deadly:
            os.kill(os.getpid(), signal.SIGKILL)
        return work(*arguments, **settings)
    return step

def write(store, version):
    view = memoryview(bytes([version]) * layout.nbytes)
    manifest = Manifest(StateRef("j", "m", version), layout, digest_of(view), 0, 0, 0, 0)
    store.write(manifest, view)

with ZarrStore(root, chunk_bytes=8192) as store:
    write(store, 1)
    if "over-a-deleted-one" in sys.argv:
        write(store, 0)
        store.delete(StateRef("j", "m", 0))
    for name in ("create", "reopen", "write_at", "sync", "sync_folder", "replace"):
        setattr(files, name, deadly_step(getattr(files, name)))
    write(store, 2)
    print(count, flush=True)
"""


def run_writer(root, deadly, *how):
    return subprocess.run(
        [sys.executable, "-c", _KILLED_WRITER, str(root), str(deadly), *how],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.fixture(scope="module")
def num_steps(tmp_path_factory):
    done = run_writer(tmp_path_factory.mktemp("whole"), 0)
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.01, 0.2, 0.4, 0.6, 0.7, 0.8, "rename", "last"])
def test_a_killed_commit_leaves_the_version_before(tmp_path, num_steps, share):
    # The last steps are: rename of the root document, sync of the version's folder (folder
    # and descriptor), sync of the model's folder (the same).
    step = {"rename": num_steps - 4, "last": num_steps}.get(share) or 1 + int(share * num_steps)
    done = run_writer(tmp_path, step)
    assert done.returncode == -signal.SIGKILL
    with ZarrStore(tmp_path) as store:
        is_committed = share == "last"
        assert store.versions("j", "m") == ((1, 2) if is_committed else (1,))
        assert store.latest("j", "m").ref.version == (2 if is_committed else 1)
        assert [finding.damage for finding in store.check()] == [""] * (1 + is_committed)
        into = memoryview(bytearray(29056))
        store.read(StateRef("j", "m", 1), into)
        assert into[0] == 1


@pytest.mark.slow
def test_a_commit_killed_over_a_deleted_version_leaves_the_version_before(tmp_path):
    whole = run_writer(tmp_path / "whole", 0, "over-a-deleted-one")
    assert whole.returncode == 0, whole.stderr
    for step in range(1, int(whole.stdout) - 4, 3):
        root = tmp_path / str(step)
        assert run_writer(root, step, "over-a-deleted-one").returncode == -signal.SIGKILL
        with ZarrStore(root) as store:
            assert store.versions("j", "m") == (1,)
            assert [finding.damage for finding in store.check()] == [""]
            store.collect("j", 1)
            assert [path.name for path in (root / "j" / "m").iterdir()] == ["v00000001"]


def test_a_full_disk_is_one_error_and_leaves_room_and_older_versions(store, states, monkeypatch):
    store.write(*states.make())
    pwritev = os.pwritev
    budget = [3 * 4096]

    def write_on_a_small_disk(fd, buffers, offset):
        size = sum(map(len, buffers))
        if size <= budget[0]:
            budget[0] -= size
            return pwritev(fd, buffers, offset)
        if budget[0]:
            left, budget[0] = budget[0], 0
            return pwritev(fd, [memoryview(buffers[0])[:left]], offset)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "pwritev", write_on_a_small_disk)
    manifest, view = states.make(version=1)
    with pytest.raises(StoreError, match="disk is full"):
        store.write(manifest, view)
    monkeypatch.undo()
    assert store.versions("job", "actor") == (0,)
    assert [path.name for path in (store.root / "job" / "actor").iterdir()] == ["v00000000"]
    store.write(manifest, view)
    assert [finding.damage for finding in store.check()] == ["", ""]


@pytest.mark.slow
def test_a_real_size_limit_is_one_error(tmp_path):
    script = _KILLED_WRITER.replace(
        "    write(store, 2)\n",
        "    import resource\n"
        "    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))\n"
        "    write(store, 2)\n",
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path), "0"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert "StoreAwayError" in done.stderr
    assert "file size limit" in done.stderr
    with ZarrStore(tmp_path) as store:
        assert store.versions("j", "m") == (1,)
        assert store.check()[0].damage == ""
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] != 4096


def test_a_failure_after_the_rename_keeps_the_version_and_a_retry_makes_it_durable(
    tmp_path, states, monkeypatch
):
    manifest, view = states.make()
    sync_folder = files.sync_folder

    def fail_on_version_folder(path):
        if path.name == "v00000000":
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        sync_folder(path)

    with ZarrStore(tmp_path) as store:
        monkeypatch.setattr(files, "sync_folder", fail_on_version_folder)
        with pytest.raises(StoreError, match="hardware"):
            store.write(manifest, view)
        with pytest.raises(StoreError, match="hardware"):
            store.write(manifest, view)
        synced = []
        monkeypatch.setattr(files, "sync_folder", synced.append)
        assert store.write(manifest, view) == 0
        assert [path.name for path in synced] == ["v00000000", "actor"]
        assert store.check()[0].damage == ""
