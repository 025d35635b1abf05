"""Opening a store: one clear error for each way it cannot be used."""

import errno
import json
import os
import re
import subprocess
import sys

import pytest

from plexrl.errors import StoreError
from plexrl.state import files
from plexrl.state.folder import FORMAT_VERSION, MARKER
from plexrl.state.zarr_store import ZarrStore


def test_a_foreign_folder_is_left_alone(tmp_path):
    (tmp_path / "thesis.tex").write_text("x")
    with pytest.raises(StoreError, match="files that are not a store's"):
        ZarrStore(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_an_empty_folder_becomes_a_store_that_opens_again(tmp_path):
    ZarrStore(tmp_path).close()
    assert json.loads((tmp_path / MARKER).read_text())["format_version"] == FORMAT_VERSION
    ZarrStore(tmp_path).close()


def test_an_unreadable_marker_is_named(tmp_path):
    (tmp_path / MARKER).write_text("{")
    with pytest.raises(StoreError, match="cannot be read"):
        ZarrStore(tmp_path)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("[]", f'write {{"format": "plexrl-store", "format_version": {FORMAT_VERSION}}} into it'),
        (f'{{"format_version": "{FORMAT_VERSION}"}}', f"store of format '{FORMAT_VERSION}'"),
        (f'{{"format_version": {FORMAT_VERSION + 1}}}', f"store of format {FORMAT_VERSION + 1}"),
        (f'{{"format": "other", "format_version": {FORMAT_VERSION}}}', "is a 'other', no store"),
    ],
)
def test_a_marker_of_something_else_is_refused(tmp_path, content, told):
    (tmp_path / MARKER).write_text(content)
    with pytest.raises(StoreError, match=re.escape(told)):
        ZarrStore(tmp_path)


def test_a_store_that_lost_its_marker_is_told_what_it_needs(tmp_path):
    store = tmp_path / "store"
    ZarrStore(store).close()
    (store / "job").mkdir()
    (store / MARKER).unlink()
    with pytest.raises(StoreError, match="a store that has lost its") as refused:
        ZarrStore(store)
    (store / MARKER).write_text(str(refused.value).partition("one with ")[2][:-1])
    ZarrStore(store).close()


def test_a_path_below_a_file_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="give a path to a folder"):
        ZarrStore(tmp_path / "file" / "store")


def test_a_store_is_claimed_by_one_writer(tmp_path):
    with ZarrStore(tmp_path), pytest.raises(StoreError, match=f"pid {os.getpid()}"):
        ZarrStore(tmp_path)
    ZarrStore(tmp_path).close()


@pytest.mark.slow
def test_the_claim_of_a_killed_process_ends_with_it(tmp_path):
    script = (
        "import sys;from plexrl.state.zarr_store import ZarrStore;"
        "s=ZarrStore(sys.argv[1]);print('open',flush=True);sys.stdin.read()"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdout.readline() == "open\n"
    with pytest.raises(StoreError, match=f"pid {child.pid}"):
        ZarrStore(tmp_path)
    with ZarrStore(tmp_path, read_only=True) as reader:
        assert reader.jobs() == ()
    child.kill()
    child.communicate()
    ZarrStore(tmp_path).close()


def test_shared_writers_claim_single_jobs(tmp_path, states):
    with ZarrStore(tmp_path, shared=True) as one, ZarrStore(tmp_path, shared=True) as two:
        one.write(*states.make(job="a"))
        two.write(*states.make(job="b"))
        with pytest.raises(StoreError, match="claimed for writing"):
            two.write(*states.make(job="a", version=1))
        one.release_job("a")
        two.write(*states.make(job="a", version=1))
        assert one.versions("a", "actor") == (0, 1)
        with pytest.raises(StoreError, match="claimed"):
            ZarrStore(tmp_path)


def test_what_a_crash_left_is_cleared_by_the_next_writer(tmp_path, states):
    with ZarrStore(tmp_path) as store:
        store.write(*states.make())
    model = tmp_path / "job" / "actor"
    (model / "v00000001" / "weights").mkdir(parents=True)
    (model / ".trash-v00000000-0").mkdir()
    with ZarrStore(tmp_path) as store:
        assert store.versions("job", "actor") == (0,)
        store.write(*states.make(version=2))
    assert sorted(path.name for path in model.iterdir()) == ["v00000000", "v00000002"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_without_permission_is_refused(tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(StoreError, match="permission denied"):
        ZarrStore(tmp_path / "store")
    tmp_path.chmod(0o700)


@pytest.mark.parametrize(
    ("code", "remedy"),
    [
        (errno.EROFS, "read-only"),
        (errno.EACCES, "permission denied"),
        (errno.ENOSPC, "disk is full"),
        (errno.EDQUOT, "quota"),
        (errno.EIO, "hardware"),
        (errno.EMFILE, "Too many open files"),
    ],
)
def test_each_refusal_of_the_disk_says_what_to_do(tmp_path, code, remedy):
    with (
        pytest.raises(StoreError, match=remedy) as caught,
        files.disk_errors("write to", tmp_path),
    ):
        raise OSError(code, os.strerror(code))
    assert str(tmp_path) in str(caught.value)


def test_groups_that_start_together_make_one_store(tmp_path, monkeypatch):
    replace, me = files.replace, os.getpid()

    def overtaken(source, target):
        monkeypatch.setattr(files, "replace", replace)
        monkeypatch.setattr(os, "getpid", lambda: me + 1)
        ZarrStore(tmp_path / "store", shared=True).close()
        replace(source, target)

    monkeypatch.setattr(files, "replace", overtaken)
    ZarrStore(tmp_path / "store", shared=True).close()
    assert (tmp_path / "store" / MARKER).exists()
    assert not list((tmp_path / "store").glob("*.tmp"))
