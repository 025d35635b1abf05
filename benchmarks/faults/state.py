"""Faults of disks and processes against the store: nothing damaged is used, nothing is lost.

Every trial has its own random state and a store with committed versions of known bytes. A
fault strikes, the store is opened again as after a restart, and every version is read back:
a version the fault did not touch must be there with its bytes, a touched one must be refused
or right, and a version whose commit was not acknowledged may be there, but only whole.
"""

from __future__ import annotations

import errno
import os
import shutil
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from unittest.mock import patch

import numpy as np

from plexrl.core.layout import pack
from plexrl.core.states import Manifest, StateRef
from plexrl.errors import StateError
from plexrl.state import files
from plexrl.state.checksums import digest_of
from plexrl.state.zarr_store import ZarrStore

LAYOUT = pack([("w", "weights", "uint8", (20000,)), ("m", "optimizer", "uint8", (9000,))])
CHUNK_BYTES = 8192
NUM_VERSIONS = 2
"""Committed before the fault."""
STEPS = ("make_folder", "create", "write_at", "sync", "sync_folder", "replace", "remove_tree")
"""Functions of `plexrl.state.files` in whose calls a process is killed."""
SLOW_S = 0.0005


@dataclass(slots=True)
class Tally:
    """What came of the faults."""

    injected: Counter[str] = field(default_factory=Counter)
    """Kind → count."""
    num_corrupt_admitted: int = 0
    """Reads that returned other bytes than were committed."""
    num_lost: int = 0
    """Versions that were committed, that no fault touched, and that could not be read."""
    num_commits_interrupted: int = 0


class Crash(BaseException):
    """The process dies here: nothing after it runs, whatever catches errors."""


@dataclass(slots=True)
class Trial:
    """One store, what was committed to it, and what the fault destroyed."""

    root: Path
    random: np.random.Generator
    tally: Tally
    committed: dict[StateRef, bytes] = field(default_factory=dict)
    unacknowledged: dict[StateRef, bytes] = field(default_factory=dict)
    destroyed: set[StateRef] = field(default_factory=set)

    def store(self, *, durable: bool = False) -> ZarrStore:
        """The store, opened as after a restart."""
        return ZarrStore(self.root, durable=durable, chunk_bytes=CHUNK_BYTES)

    def make(self, version: int) -> tuple[Manifest, bytes]:
        """A new version of random bytes."""
        content = self.random.bytes(LAYOUT.nbytes)
        ref = StateRef("job", "actor", version)
        return Manifest(ref, LAYOUT, digest_of(memoryview(content)), version, 0, 0, 0), content

    def commit(self, store: ZarrStore, version: int) -> None:
        """Write a version; it counts as committed once the store says so."""
        manifest, content = self.make(version)
        self.unacknowledged[manifest.ref] = content
        store.write(manifest, memoryview(content))
        self.committed[manifest.ref] = self.unacknowledged.pop(manifest.ref)

    def folder(self, version: int) -> Path:
        """Where a version lies."""
        return self.root / "job" / "actor" / f"v{version:08d}"

    def pick_file(self, version: int) -> Path:
        """One of the files of a version."""
        paths = sorted(path for path in self.folder(version).rglob("*") if path.is_file())
        return paths[int(self.random.integers(len(paths)))]


def torn_write(trial: Trial) -> None:
    """The process dies in the middle of a write: of a commit, or of a file long committed."""
    if trial.random.random() < 0.5:
        path = trial.pick_file(1)
        os.truncate(path, int(trial.random.integers(path.stat().st_size)))
        trial.destroyed.add(StateRef("job", "actor", 1))
        return
    left = int(trial.random.integers(1, 40))
    pwritev = os.pwritev

    def torn(fd: int, buffers: list[memoryview], offset: int) -> int:
        nonlocal left
        left -= 1
        if left > 0:
            return pwritev(fd, buffers, offset)
        os.pwrite(fd, buffers[0][: int(trial.random.integers(len(buffers[0])))], offset)
        raise Crash

    # A dead process clears nothing up.
    with patch.object(os, "pwritev", torn), patch.object(files, "remove_tree", lambda _: None):
        _crashing_commit(trial)


def bit_flip(trial: Trial) -> None:
    """One bit of one file of the newest version changes."""
    path = trial.pick_file(1)
    content = bytearray(path.read_bytes())
    content[int(trial.random.integers(len(content)))] ^= 1 << int(trial.random.integers(8))
    path.write_bytes(content)
    trial.destroyed.add(StateRef("job", "actor", 1))


def full_disk(trial: Trial) -> None:
    """The disk takes so many bytes and no more; once there is room, the commit succeeds."""
    left = int(trial.random.integers(LAYOUT.nbytes))
    pwritev = os.pwritev

    def limited(fd: int, buffers: list[memoryview], offset: int) -> int:
        nonlocal left
        size = min(sum(map(len, buffers)), left)
        if not size:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        left -= size
        taken = [buffers[0][:size]] if size < len(buffers[0]) else buffers
        return pwritev(fd, taken, offset)

    with trial.store() as store:
        with patch.object(os, "pwritev", limited):
            try:
                trial.commit(store, NUM_VERSIONS)
            except StateError:
                trial.unacknowledged.clear()
        if StateRef("job", "actor", NUM_VERSIONS) not in trial.committed:
            trial.commit(store, NUM_VERSIONS)


def slow_disk(trial: Trial) -> None:
    """Every call to the disk dawdles and does only a part of what was asked."""
    pwritev, preadv = os.pwritev, os.preadv

    def dawdle(nbytes: int) -> int:
        if trial.random.random() < 0.2:
            time.sleep(SLOW_S)
        return int(trial.random.integers(1, nbytes + 1))

    def slow_write(fd: int, buffers: list[memoryview], offset: int) -> int:
        return pwritev(fd, [buffers[0][: dawdle(len(buffers[0]))]], offset)

    def slow_read(fd: int, buffers: list[memoryview], offset: int) -> int:
        return preadv(fd, [buffers[0][: dawdle(len(buffers[0]))]], offset)

    with patch.object(os, "pwritev", slow_write), patch.object(os, "preadv", slow_read):
        with trial.store() as store:
            trial.commit(store, NUM_VERSIONS)
        audit(trial)


def vanished_file(trial: Trial) -> None:
    """One file of the newest version is gone."""
    trial.pick_file(1).unlink()
    trial.destroyed.add(StateRef("job", "actor", 1))


def _crashing_commit(trial: Trial) -> None:
    with trial.store() as store:
        try:
            trial.commit(store, NUM_VERSIONS)
        except Crash:
            return


def kill_at(trial: Trial, step: int) -> bool:
    """A process is killed by the system at one step of commit and retention.

    Returns
    -------
    bool
        Whether it got as far as that step; if not, it finished.
    """
    manifest, content = trial.make(NUM_VERSIONS)
    trial.unacknowledged[manifest.ref] = content
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        _commit_and_die(trial, manifest, content, step, writer)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        told = pipe.read()
    _, status = os.waitpid(child, 0)
    if b"c" in told:
        trial.committed[manifest.ref] = trial.unacknowledged.pop(manifest.ref)
        # Retention was about to delete it: from here on it may be there or not.
        trial.destroyed.add(StateRef("job", "actor", 0))
    elif os.WIFEXITED(status):
        raise RuntimeError(f"the committing process ended with {status} before it committed")
    return os.WIFSIGNALED(status)


def _commit_and_die(
    trial: Trial, manifest: Manifest, content: bytes, step: int, writer: int
) -> None:
    """The child's life: it never returns."""
    count = 0

    def deadly(work: Callable[..., object]) -> Callable[..., object]:
        def run(*arguments: object, **settings: object) -> object:
            nonlocal count
            count += 1
            if count == step:
                os.kill(os.getpid(), signal.SIGKILL)
            return work(*arguments, **settings)

        return run

    try:
        with trial.store(durable=True) as store:
            for name in STEPS:
                setattr(files, name, deadly(getattr(files, name)))
            store.write(manifest, memoryview(content))
            os.write(writer, b"c")
            store.retain("job", "actor", 2)
        os._exit(0)
    finally:
        os._exit(1)


def audit(trial: Trial) -> None:
    """Open the store anew and compare every version, and a part of it, with what was committed."""
    tally = trial.tally
    with trial.store() as store:
        for ref, content in {**trial.committed, **trial.unacknowledged}.items():
            start, stop = sorted(trial.random.integers(0, LAYOUT.nbytes + 1, 2).tolist())
            into = memoryview(bytearray(LAYOUT.nbytes))
            try:
                store.read_ranges(ref, [(start, stop)], into[: stop - start])
                tally.num_corrupt_admitted += into[: stop - start] != content[start:stop]
                store.read(ref, into)
            except StateError:
                if ref in trial.committed and ref not in trial.destroyed:
                    tally.num_lost += 1
                continue
            tally.num_corrupt_admitted += into != content
        good = set(trial.committed) - trial.destroyed
        latest = store.latest("job", "actor")
        newest = max((ref.version for ref in good), default=-1)
        tally.num_lost += latest is None or latest.ref.version < newest


KINDS: Mapping[str, Callable[[Trial], None]] = {
    "torn_write": torn_write,
    "bit_flip": bit_flip,
    "full_disk": full_disk,
    "slow_disk": slow_disk,
    "vanished_file": vanished_file,
}


@contextmanager
def new_trial(seed: tuple[int, ...], tally: Tally) -> Iterator[Trial]:
    """A store with committed versions, removed afterwards."""
    root = Path(tempfile.mkdtemp(prefix="plexrl-faults-"))
    trial = Trial(root / "store", np.random.default_rng(seed), tally)
    try:
        with trial.store() as store:
            for version in range(NUM_VERSIONS):
                trial.commit(store, version)
        yield trial
    finally:
        shutil.rmtree(root)


def inject(num_each: int, num_kill_rounds: int, seed: int) -> Tally:
    """Inject faults of every kind.

    Parameters
    ----------
    num_each
        Faults of each kind but the kills.
    num_kill_rounds
        How many times a process is killed at each step of a commit.
    """
    tally = Tally()
    for number, (kind, strike) in enumerate(KINDS.items()):
        for index in range(num_each):
            with new_trial((seed, number, index), tally) as trial:
                strike(trial)
                tally.injected[kind] += 1
                tally.num_commits_interrupted += len(trial.unacknowledged)
                audit(trial)
    for index in range(num_kill_rounds):
        step, is_killed = 1, True
        while is_killed:
            with new_trial((seed, len(KINDS), index, step), tally) as trial:
                is_killed = kill_at(trial, step)
                tally.injected["kill_9"] += is_killed
                tally.num_commits_interrupted += len(trial.unacknowledged)
                audit(trial)
            step += 1
    return tally
