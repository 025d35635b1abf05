"""Arenas are page-locked once, where there is CUDA; the runtime here is a stand-in."""

import ctypes
import mmap

import pytest

from plexrl.engines.pinning import Pinning, pinning_of_process


class Runtime:
    """Notes what is locked; no CUDA device is needed."""

    def __init__(self, code=0):
        self.code = code
        self.locked = {}

    def cudaHostRegister(self, address, nbytes, flags):  # noqa: N802
        assert flags == 0
        if not self.code:
            self.locked[address] = nbytes
        return self.code

    def cudaHostUnregister(self, address):  # noqa: N802
        del self.locked[address]
        return 0


@pytest.fixture
def view():
    with mmap.mmap(-1, 8192) as mapping:
        arena = memoryview(mapping)
        yield arena
        arena.release()


def test_an_arena_is_locked_where_it_is_mapped_and_unlocked_once(view):
    runtime = Runtime()
    pinning = Pinning(runtime)
    assert pinning.pin("a", view)
    assert list(runtime.locked.values()) == [8192]
    (address,) = runtime.locked
    ctypes.memset(address, 7, 1)
    assert view[0] == 7
    pinning.unpin("a")
    pinning.unpin("a")
    assert runtime.locked == {}


def test_a_refusal_is_told_and_the_arena_stays_usable(view, caplog):
    pinning = Pinning(Runtime(code=2))
    assert not pinning.pin("a", view)
    assert "not page-locked (CUDA error 2)" in caplog.text
    pinning.unpin("a")
    view[0] = 1


def test_nothing_is_locked_without_cuda(view):
    assert not Pinning(None).pin("a", view)
    assert not pinning_of_process().pin("a", view)
