"""Arenas: shared memory that leaves nothing behind."""

import mmap
import os
import socket
import subprocess
import sys

import numpy as np
import pytest

from plexrl.errors import StateError
from plexrl.state.arena import Arena, ArenaPool


def test_an_arena_is_writable_and_page_aligned():
    arena = Arena(1000)
    arena.view[:3] = b"abc"
    assert bytes(arena.view[:4]) == b"abc\0"
    assert len(arena.view) == arena.nbytes == 1000
    assert np.frombuffer(arena.view, np.uint8).ctypes.data % mmap.PAGESIZE == 0
    arena.close()


def test_an_arena_mapped_through_its_descriptor_shows_the_same_bytes():
    arena = Arena(64)
    other = Arena.from_fd(os.dup(arena.fd), 64)
    other.view[10] = 7
    assert arena.view[10] == 7
    assert other.id != arena.id
    other.close()
    arena.view[10] = 8
    arena.close()


@pytest.mark.slow
def test_another_process_writes_into_an_arena():
    arena = Arena(5)
    ours, theirs = socket.socketpair()
    script = (
        "import socket,sys;from plexrl.state.arena import Arena;"
        "s=socket.socket(fileno=int(sys.argv[1]));"
        "_,fds,_,_=socket.recv_fds(s,1,1);"
        "a=Arena.from_fd(fds[0],5);a.view[:]=b'hello';a.close()"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", script, str(theirs.fileno())], pass_fds=[theirs.fileno()]
    )
    socket.send_fds(ours, [b"x"], [arena.fd])
    assert child.wait(timeout=60) == 0
    assert bytes(arena.view) == b"hello"
    arena.close()
    ours.close()
    theirs.close()


def test_closing_frees_the_descriptor_and_lets_live_slices_stay_readable():
    arena = Arena(16)
    array = np.frombuffer(arena.view, np.uint8)
    fd = arena.fd
    arena.close()
    arena.close()
    assert arena.is_closed
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)
    assert array.sum() == 0


def test_an_empty_arena_is_legal_and_a_negative_one_is_not():
    arena = Arena(0)
    assert len(arena.view) == 0
    arena.close()
    with pytest.raises(StateError, match="-1 bytes"):
        Arena(-1)


def test_a_descriptor_of_a_shorter_file_is_refused():
    arena = Arena(10)
    with pytest.raises(StateError, match="holds 10 bytes"):
        Arena.from_fd(arena.fd, 11)
    arena.close()


def test_without_memfd_an_unlinked_file_serves(monkeypatch, tmp_path):
    monkeypatch.delattr(os, "memfd_create", raising=False)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    arena = Arena(100)
    arena.view[99] = 1
    assert list(tmp_path.iterdir()) == []
    arena.close()


def test_a_pool_reuses_memory_of_the_same_size():
    pool = ArenaPool(300)
    first = pool.acquire(100)
    name = first.id
    pool.release(first)
    assert pool.acquire(100).id == name
    assert pool.num_used_bytes == 100


def test_a_pool_gives_idle_memory_back_before_it_exceeds_its_limit():
    pool = ArenaPool(300)
    small = pool.acquire(100)
    pool.release(small)
    assert pool.num_idle_bytes == 100
    pool.acquire(250)
    assert small.is_closed
    assert pool.num_idle_bytes == 0


def test_closing_a_pool_closes_idle_arenas():
    pool = ArenaPool(300)
    arena = pool.acquire(100)
    pool.release(arena)
    pool.close()
    assert arena.is_closed


def test_a_closed_arena_gives_its_pages_back_though_another_mapping_is_left():
    arena = Arena(1 << 20)
    arena.view[:4] = b"data"
    other = Arena.from_fd(os.dup(arena.fd), arena.nbytes)
    assert os.fstat(other.fd).st_blocks > 0
    arena.close()
    assert os.fstat(other.fd).st_blocks == 0
    other.close()


def test_closing_a_borrowed_arena_leaves_the_owners_bytes():
    arena = Arena(4096)
    arena.view[:4] = b"data"
    Arena.from_fd(os.dup(arena.fd), arena.nbytes).close()
    assert bytes(arena.view[:4]) == b"data"
    arena.close()
