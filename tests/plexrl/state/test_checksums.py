"""Checksums compose as crc32c does, and find every changed bit."""

import google_crc32c
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plexrl.errors import IntegrityError
from plexrl.state.checksums import (
    GRAIN_BYTES,
    checksum_of_grains,
    combine,
    combine_all,
    crc32c,
    digest_of,
    digest_of_grains,
    grain_checksums,
    measured,
    pieces,
    verify,
)


def test_the_checksum_is_castagnolis():
    assert crc32c(b"123456789") == 0xE3069283  # RFC 3720, appendix B.4, check value
    assert crc32c(b"") == 0


@given(st.binary(max_size=200), st.binary(max_size=200))
def test_checksums_of_parts_combine_to_that_of_the_whole(first, second):
    whole = google_crc32c.value(first + second)
    assert combine(crc32c(first), crc32c(second), len(second)) == whole


@pytest.mark.parametrize("num_bytes", [1, 65535, 65536, 1 << 20])
def test_any_buffer_gives_the_checksum_of_its_bytes(num_bytes):
    data = bytes(range(251)) * (num_bytes // 251 + 1)
    expected = google_crc32c.extend(7, data[:num_bytes])
    for content in (data[:num_bytes], bytearray(data[:num_bytes]), memoryview(data)[:num_bytes]):
        assert crc32c(content, 7) == expected


def test_parts_of_a_grain_and_more_combine():
    data = bytes(range(256)) * (GRAIN_BYTES // 128) + b"tail"
    parts = [(crc32c(data[a:b]), b - a) for a, b in pieces(0, len(data))]
    assert len(parts) == 3
    assert combine_all(parts) == google_crc32c.value(data)


def test_pieces_are_measured_where_they_lie_in_the_state():
    data = bytes(range(256)) * (GRAIN_BYTES // 128)
    start = GRAIN_BYTES - 100
    found = measured(memoryview(data), start, start + len(data))
    assert [(a, n) for a, n, _ in found] == [
        (start, 100),
        (GRAIN_BYTES, GRAIN_BYTES),
        (2 * GRAIN_BYTES, GRAIN_BYTES - 100),
    ]
    assert combine_all((crc, n) for _, n, crc in found) == google_crc32c.value(data)


def test_the_checksum_of_several_grains_follows_from_theirs():
    data = bytes(range(251)) * (3 * GRAIN_BYTES // 251)
    grains = grain_checksums(memoryview(data))
    start = GRAIN_BYTES
    assert checksum_of_grains(grains, start, len(data)) == google_crc32c.value(data[start:])


def test_pieces_cross_no_grain():
    assert list(pieces(GRAIN_BYTES - 1, GRAIN_BYTES + 2)) == [
        (GRAIN_BYTES - 1, GRAIN_BYTES),
        (GRAIN_BYTES, GRAIN_BYTES + 2),
    ]
    assert list(pieces(5, 5)) == []
    assert list(pieces(5, 9, 4)) == [(5, 8), (8, 9)]


@pytest.mark.parametrize("position", [0, GRAIN_BYTES - 1, GRAIN_BYTES, GRAIN_BYTES + 9])
def test_a_flipped_bit_changes_the_digest(position):
    data = bytearray(GRAIN_BYTES + 10)
    before = digest_of(memoryview(data))
    data[position] ^= 16
    assert digest_of(memoryview(data)) != before


def test_a_digest_depends_on_the_length():
    assert digest_of(memoryview(bytes(3))) != digest_of(memoryview(bytes(4)))


def test_a_digest_follows_from_grains_alone():
    view = memoryview(b"x" * (GRAIN_BYTES + 1))
    grains = grain_checksums(view)
    assert len(grains) == 2
    assert digest_of(view, grains) == digest_of_grains(grains, len(view)) == digest_of(view)


def test_verify_names_the_state_whose_bytes_changed():
    view = memoryview(b"abc")
    verify(view, digest_of(view), "a/actor@1")
    with pytest.raises(IntegrityError, match="a/actor@1"):
        verify(memoryview(b"abd"), digest_of(view), "a/actor@1")
