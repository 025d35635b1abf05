"""Small states for the tests of the state tiers."""

import numpy as np
import pytest

from plexrl.core.layout import pack
from plexrl.core.states import Manifest, StateRef
from plexrl.state.arena import Arena
from plexrl.state.checksums import digest_of
from plexrl.state.zarr_store import ZarrStore


class StateFactory:
    """Makes states whose bytes follow from their name."""

    def __init__(self):
        self.layout = pack(
            [
                ("w", "weights", "float32", (300, 7)),
                ("b", "weights", "bfloat16", (5,)),
                ("m/w", "optimizer", "float32", (300, 7)),
                ("step", "optimizer", "int64", ()),
            ]
        )
        self._arenas = []

    def fill(self, ref, view):
        """The bytes of a version, written into a buffer; returns its manifest."""
        seed = [ord(letter) for letter in f"{ref.job}{ref.model}"] + [ref.version]
        generator = np.random.default_rng(seed)
        np.frombuffer(view, np.uint8)[:] = generator.integers(0, 256, len(view), dtype=np.uint8)
        return self.manifest(ref, view)

    def manifest(self, ref, view):
        return Manifest(
            ref,
            self.layout,
            digest_of(view),
            iteration=ref.version,
            optimizer_steps=2 * ref.version,
            data_cursor=8 * ref.version,
            seed=3,
            metrics={"reward": 0.5, "loss": float("nan")},
            created_unix_s=12.5,
        )

    def make(self, job="job", model="actor", version=0):
        """(manifest, view) of a version."""
        arena = Arena(self.layout.nbytes)
        self._arenas.append(arena)
        return self.fill(StateRef(job, model, version), arena.view), arena.view

    def close(self):
        for arena in self._arenas:
            arena.close()


@pytest.fixture
def states():
    factory = StateFactory()
    yield factory
    factory.close()


@pytest.fixture
def store(tmp_path):
    with ZarrStore(tmp_path / "store", durable=False, chunk_bytes=4096) as opened:
        yield opened
