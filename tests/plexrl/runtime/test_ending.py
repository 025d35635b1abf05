"""A job has finished once its last version is in the store."""

import asyncio

import pytest

from dataflow.calls import VersionToken
from plexrl.core.states import StateRef
from plexrl.errors import VersionFenceError
from plexrl.runtime import ending
from plexrl.runtime.ending import until_stored

REF = StateRef("a", "actor", 4)
TOKEN = VersionToken("a", "actor", 4, "")


class Written:
    """A store that has the version from the given look on."""

    def __init__(self, looks):
        self.looks = looks

    def __enter__(self):
        self.looks -= 1
        return self

    def __exit__(self, *_exc):
        return None

    def contains(self, ref):
        assert ref == REF
        return self.looks < 0


async def nothing_is_lost():
    pass


def wait(monkeypatch, store, said, check=nothing_is_lost):
    monkeypatch.setattr(ending, "open_store", lambda *_args, **_options: store)
    monkeypatch.setattr(ending, "QUIET_S", 0.0)
    asyncio.run(until_stored("somewhere", [TOKEN], said.append, check))


def test_it_waits_until_the_version_is_there_and_says_so_once(monkeypatch):
    said, store = [], Written(looks=3)
    wait(monkeypatch, store, said)
    assert store.looks < 0
    assert said == ["the store: a/actor@4 is not written yet"]


def test_it_does_not_wait_for_ever(monkeypatch, caplog):
    monkeypatch.setattr(ending, "MAX_WAIT_S", 0.0)
    wait(monkeypatch, Written(looks=1000), [])
    assert "a/actor@4 is not in the store" in caplog.text


def test_it_does_not_warn_of_what_is_stored_during_its_last_check(monkeypatch, caplog):
    store = Written(looks=1)

    async def check():
        assert store.looks == 0

    monkeypatch.setattr(ending, "MAX_WAIT_S", 0.0)
    wait(monkeypatch, store, [], check)
    assert (store.looks, caplog.text) == (-1, "")


@pytest.mark.parametrize("max_wait_s", [0.0, 1000.0])
def test_it_ends_at_once_when_nobody_has_the_version_any_more(monkeypatch, caplog, max_wait_s):
    async def check():
        raise VersionFenceError("gone with its group")

    monkeypatch.setattr(ending, "MAX_WAIT_S", max_wait_s)
    with pytest.raises(VersionFenceError):
        wait(monkeypatch, Written(looks=1000), [], check)
    assert "not in the store" not in caplog.text


def test_a_store_that_is_not_there_is_not_waited_for(tmp_path):
    said = []
    asyncio.run(until_stored(str(tmp_path / "none"), [TOKEN], said.append, nothing_is_lost))
    assert said == []
