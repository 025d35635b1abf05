"""The real manager and store against a dictionary, under faults and crashes."""

import importlib.util
import shutil
import tempfile
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from plexrl.core.layout import pack
from plexrl.core.states import Manifest, StateRef, Tier
from plexrl.errors import IntegrityError, StateError, StoreError
from plexrl.state.checksums import digest_of
from plexrl.state.manager import StateManager
from tests.plexrl.state.backends import FolderBackend, object_folder

JOBS = ("a", "b", "c")
LAYOUT = pack([("w", "weights", "float32", (40,)), ("m", "optimizer", "float32", (70,))])

pytestmark = pytest.mark.slow


class StatesAgainstDictionary(RuleBasedStateMachine):
    """Every version handed out has the bytes committed under its name."""

    make_backend: ClassVar

    def __init__(self):
        super().__init__()
        self.root = Path(tempfile.mkdtemp())
        self.backend = type(self).make_backend(self.root / "store")
        self.committed = {}
        """Bytes ever committed, by version; a version made again has the same bytes."""
        self.durable = {}
        """Job → newest version that was acknowledged as durable and not damaged since."""
        self.newest = {}
        """Job → newest committed version."""
        self.damaged = set()
        """Versions whose stored bytes were changed behind the store's back."""
        self.pinned = []
        self.num_arenas = 2

    @initialize(num_arenas=st.integers(2, 5))
    def open(self, num_arenas):
        self.num_arenas = num_arenas
        self._open()

    def _open(self):
        self.store = self.backend.open()
        self.manager = StateManager(
            self.store, host_budget_bytes=self.num_arenas * LAYOUT.nbytes, retry_s=0.001
        )

    def teardown(self):
        self.manager.close()
        self.store.close()
        shutil.rmtree(self.root)

    def _bytes(self, ref):
        generator = np.random.default_rng([ord(ref.job), ref.version])
        return generator.integers(0, 256, LAYOUT.nbytes, dtype=np.uint8).tobytes()

    def _has_room(self):
        return len(set(self.pinned)) < self.num_arenas

    @precondition(_has_room)
    @rule(job=st.sampled_from(JOBS), durable=st.booleans())
    def make_a_version(self, job, durable):
        ref = StateRef(job, "m", self.newest.get(job, -1) + 1)
        arena = self.manager.allocate(ref, LAYOUT)
        content = self._bytes(ref)
        arena.view[:] = content
        manifest = Manifest(ref, LAYOUT, digest_of(arena.view), ref.version, 0, 0, 0)
        self.manager.commit(manifest, arena, durable=durable)
        self.committed[ref] = content
        self.damaged.discard(ref)
        self.newest[job] = ref.version

    @precondition(_has_room)
    @rule(job=st.sampled_from(JOBS))
    def abandon_a_version(self, job):
        ref = StateRef(job, "m", self.newest.get(job, -1) + 1)
        arena = self.manager.allocate(ref, LAYOUT)
        arena.view[:] = bytes(LAYOUT.nbytes)
        self.manager.abandon(arena)

    @precondition(_has_room)
    @rule(job=st.sampled_from(JOBS))
    def fetch_the_latest(self, job):
        latest = self.manager.latest(job, "m")
        newest = StateRef(job, "m", self.newest.get(job, -1))
        if newest in self.damaged and (latest is None or latest.ref != newest):
            self._go_back(job)  # a prefetch found the damage
            return
        if latest is None:
            assert newest.version == -1
            return
        assert latest.ref == newest
        try:
            fetched = self.manager.fetch(newest)
        except IntegrityError:
            assert newest in self.damaged
            self._go_back(job)
            return
        assert newest not in self.damaged
        assert bytes(fetched.arena.view) == self.committed[latest.ref]
        self.pinned.append(latest.ref)

    def _go_back(self, job):
        """A damaged version is gone: what the store still has is where the job goes on."""
        latest = self.manager.latest(job, "m")
        self.damaged.discard(StateRef(job, "m", self.newest[job]))
        self.newest[job] = latest.ref.version if latest else -1
        self.durable[job] = min(self.durable.get(job, -1), self.newest[job])

    @precondition(lambda self: self.pinned)
    @rule(data=st.data())
    def release_one(self, data):
        ref = data.draw(st.sampled_from(self.pinned))
        arena_bytes = self.manager.fetch(ref)
        assert bytes(arena_bytes.arena.view) == self.committed[ref]
        self.manager.release(ref)
        self.manager.release(ref)
        self.pinned.remove(ref)

    @rule(job=st.sampled_from(JOBS))
    def prefetch_the_latest(self, job):
        latest = self.manager.latest(job, "m")
        if latest is not None:
            self.manager.prefetch(latest.ref)

    @rule(order=st.permutations(JOBS), length=st.integers(0, 3))
    def plan(self, order, length):
        self.manager.set_next_use([(job, "m") for job in order[:length]])

    @rule(job=st.sampled_from(JOBS))
    def wait_until_durable(self, job):
        ref = StateRef(job, "m", self.newest.get(job, -1))
        if ref.version >= 0 and ref not in self.damaged:
            self.manager.wait_durable(ref, 60)
            self.durable[job] = ref.version

    @rule()
    def flush_all(self):
        self.manager.flush(60)
        self.durable = dict(self.newest)

    @rule()
    def restart(self):
        """What was acknowledged is there; what is there has the right bytes."""
        self.manager.close()
        self.store.close()
        self.pinned.clear()
        self._open()
        for job in JOBS:
            latest = self.manager.latest(job, "m")
            version = latest.ref.version if latest else -1
            newest = StateRef(job, "m", self.newest.get(job, -1))
            if newest in self.damaged and version < newest.version:
                self._go_back(job)  # a prefetch found the damage
                continue
            assert version >= self.durable.get(job, -1)
            assert version <= self.newest.get(job, -1)
            self.newest[job] = version
        found = {finding.ref for finding in self.store.check() if finding.damage}
        assert found <= self.damaged

    @rule(job=st.sampled_from(JOBS), position=st.integers(0, 100), bit=st.integers(0, 7))
    def damage_a_stored_version_and_restart(self, job, position, bit):
        self.manager.flush(60)
        self.manager.close()
        self.durable = dict(self.newest)
        versions = self.store.versions(job, "m")
        ref = StateRef(job, "m", versions[-1]) if versions else None
        if ref and ref not in self.damaged:
            self.damaged.add(ref)
            chunk = self.backend.chunks(self.store, ref)[bit % 2]
            content = bytearray(self.backend.read(self.store, chunk))
            content[position % len(content)] ^= 1 << bit
            self.backend.replace(self.store, chunk, bytes(content))
        self.store.close()
        self.pinned.clear()
        self._open()

    @invariant()
    def the_budget_holds_and_the_table_is_sound(self):
        if hasattr(self, "manager"):
            with self.manager._host.condition:
                self.manager._host.table.check()
            assert self.manager.host_used_bytes <= self.manager.host_budget_bytes
            assert set(map(str, self.pinned)) <= set(self.manager.resident()[Tier.HOST])


_SETTINGS = settings(
    max_examples=40,
    stateful_step_count=30,
    suppress_health_check=list(HealthCheck),
)


class InAFolder(StatesAgainstDictionary):
    make_backend = FolderBackend


class AtAUrl(StatesAgainstDictionary):
    make_backend = staticmethod(object_folder)


TestInAFolder = InAFolder.TestCase
TestInAFolder.settings = _SETTINGS
if importlib.util.find_spec("obstore"):
    TestAtAUrl = AtAUrl.TestCase
    TestAtAUrl.settings = _SETTINGS


def test_the_errors_of_a_store_are_errors_of_states():
    assert issubclass(StoreError, StateError)
    assert issubclass(IntegrityError, StateError)
