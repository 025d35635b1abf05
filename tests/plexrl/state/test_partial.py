"""Partial reads give the bytes asked for, verified, and read little else."""

import numpy as np
import pytest

from plexrl.core.layout import pack
from plexrl.core.states import Manifest, StateRef
from plexrl.errors import IntegrityError, StateError
from plexrl.state.checksums import GRAIN_BYTES, digest_of
from plexrl.state.partial import STRETCH_BYTES, Stretch, stretches
from plexrl.state.slices import covering_range, read_slices, shard, slot_of
from plexrl.state.zarr_store import ZarrStore

REF = StateRef("job", "actor", 0)
LAYOUT = pack(
    [
        ("norm", "weights", "float32", (33,)),
        ("proj", "weights", "float32", (1000, 700)),
        ("half", "weights", "bfloat16", (9, 5)),
        ("m", "optimizer", "float32", (1000, 700)),
        ("step", "optimizer", "int64", ()),
    ]
)


@pytest.fixture(scope="module")
def content():
    data = np.random.default_rng(0).integers(0, 256, LAYOUT.nbytes, dtype=np.uint8)
    return data.tobytes()


@pytest.fixture
def large(tmp_path, content):
    with ZarrStore(tmp_path, durable=False, chunk_bytes=1_500_000) as store:
        view = memoryview(content)
        store.write(Manifest(REF, LAYOUT, digest_of(view), 0, 0, 0, 0), view)
        yield store


def tensor(content, name):
    slot = slot_of(LAYOUT, name)
    raw = content[slot.offset : slot.offset + slot.nbytes]
    dtype = {"bfloat16": "uint16"}.get(slot.dtype, slot.dtype)
    return np.frombuffer(raw, dtype).reshape(slot.shape)


@pytest.mark.parametrize(
    "ranges",
    [
        [(0, LAYOUT.nbytes)],
        [(5, 6)],
        [(GRAIN_BYTES - 1, GRAIN_BYTES + 1)],
        [(1_499_000, 1_501_000), (0, 10), (3_000_000, 5_000_000)],
        [(7, 7)],
        [(100, 200), (150, 250), (100, 200)],
        [(300, 400), (100, 200), (400, 500)],
        [],
    ],
)
def test_ranges_lie_one_behind_the_other(large, content, ranges):
    into = memoryview(bytearray(sum(stop - start for start, stop in ranges)))
    num_read = large.read_ranges(REF, ranges, into)
    assert bytes(into) == b"".join(content[start:stop] for start, stop in ranges)
    assert num_read <= len(into) + 2 * GRAIN_BYTES * len(ranges)


def test_ranges_touch_only_their_grains_and_each_grain_once():
    ranges = [(10, GRAIN_BYTES + 10), (20, 30), (4 * GRAIN_BYTES, 4 * GRAIN_BYTES + 1)]
    first, second = stretches(ranges, 5 * GRAIN_BYTES - 7)
    assert first == Stretch(0, 2 * GRAIN_BYTES, ((10, GRAIN_BYTES + 10, 0), (20, 30, GRAIN_BYTES)))
    assert (second.start, second.stop) == (4 * GRAIN_BYTES, 5 * GRAIN_BYTES - 7)


def test_a_slice_of_a_mebibyte_is_read_at_once_and_a_longer_one_in_parts():
    start = 3 * GRAIN_BYTES + 1000
    (stretch,) = stretches([(start, start + 4 * GRAIN_BYTES)], 100 * GRAIN_BYTES)
    assert stretch.stop - stretch.start == 5 * GRAIN_BYTES
    parts = stretches([(1, 3 * STRETCH_BYTES)], 100 * GRAIN_BYTES)
    assert [(part.start, part.copies[0][2]) for part in parts] == [
        (0, 0),
        (STRETCH_BYTES, STRETCH_BYTES - 1),
        (2 * STRETCH_BYTES, 2 * STRETCH_BYTES - 1),
    ]


def test_many_small_ranges_of_a_stretch_are_read_as_few(large, content):
    ranges = [(start, start + 2) for start in range(0, 8000, 4)]
    into = memoryview(bytearray(4000))
    assert large.read_ranges(REF, ranges, into) == GRAIN_BYTES
    assert bytes(into) == b"".join(content[start:stop] for start, stop in ranges)


@pytest.mark.parametrize(
    "index", [(), (slice(10, 20),), (slice(None), slice(3, 9)), (slice(-5, None), slice(0, 0))]
)
def test_slices_are_those_of_the_tensor(large, content, index):
    found = read_slices(large, REF, {"proj": index, "m": index})
    for name in ("proj", "m"):
        assert np.array_equal(
            found[name].view("uint32"), tensor(content, name)[index].copy().view("uint32")
        )


def test_dtypes_that_numpy_lacks_and_scalars_come_byte_for_byte(large, content):
    found = read_slices(large, REF, {"half": (slice(2, 4),), "step": ()})
    assert np.array_equal(found["half"], tensor(content, "half")[2:4])
    assert found["step"] == tensor(content, "step")


@pytest.mark.parametrize("num_shards", [1, 3, 7, 1001])
def test_shards_cover_a_dimension_once(num_shards):
    rows = [row for i in range(num_shards) for row in range(1000)[shard(1000, i, num_shards)]]
    assert rows == list(range(1000))


def test_shards_of_all_ranks_are_the_tensor(large, content):
    parts = [read_slices(large, REF, {"proj": (shard(1000, i, 4),)})["proj"] for i in range(4)]
    assert np.array_equal(
        np.concatenate(parts).view("uint32"), tensor(content, "proj").view("uint32")
    )


def test_damage_in_a_touched_grain_is_found_and_elsewhere_it_is_not_looked_for(large, content):
    path = large.root / "job" / "actor" / "v00000000" / "weights" / "c.0"
    damaged = bytearray(path.read_bytes())
    damaged[100] ^= 4
    path.write_bytes(damaged)
    into = memoryview(bytearray(10))
    large.read_ranges(REF, [(3_000_000, 3_000_010)], into)
    assert bytes(into) == content[3_000_000:3_000_010]
    with pytest.raises(IntegrityError, match=r"weights/c\.0 does not match its checksum"):
        large.read_ranges(REF, [(200, 210)], into)
    assert large.versions("job", "actor") == ()


@pytest.mark.parametrize("damage", ["missing", "short"])
def test_a_chunk_that_is_gone_or_short_is_damage(large, damage):
    path = large.root / "job" / "actor" / "v00000000" / "weights" / "c.0"
    if damage == "missing":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:50])
    with pytest.raises(
        IntegrityError, match="is missing" if damage == "missing" else "has 50 bytes"
    ):
        large.read_ranges(REF, [(0, 10)], memoryview(bytearray(10)))


@pytest.mark.parametrize(
    ("ranges", "nbytes", "told"),
    [
        ([(0, LAYOUT.nbytes + 1)], LAYOUT.nbytes + 1, "does not lie in"),
        ([(5, 4)], 0, "does not lie in"),
        ([(0, 4)], 5, "give a buffer of their size"),
    ],
)
def test_impossible_ranges_are_refused(large, ranges, nbytes, told):
    with pytest.raises(StateError, match=told):
        large.read_ranges(REF, ranges, memoryview(bytearray(nbytes)))


@pytest.mark.parametrize(
    ("name", "index", "told"),
    [
        ("prj", (), "no tensor is called 'prj'"),
        ("norm", (slice(0, 1), slice(0, 1)), "cannot be cut"),
        ("norm", (slice(0, 4, 2),), "cannot be cut"),
    ],
)
def test_impossible_slices_are_refused(large, name, index, told):
    with pytest.raises(StateError, match=told):
        read_slices(large, REF, {name: index})


def test_a_covering_range_is_that_of_the_rows():
    slot = slot_of(LAYOUT, "proj")
    assert covering_range(slot, (slice(1, 3), slice(0, 1))) == (
        slot.offset + 2800,
        slot.offset + 8400,
    )
