"""Claims of jobs at a URL: they run out, and move within a cluster."""

import pytest

from plexrl.errors import StoreError
from plexrl.state.buckets import Bucket
from plexrl.state.claims import CLAIM_TTL_S, Claims

pytest.importorskip("obstore", reason="needs obstore (plexrl[remote])")


class Clock:
    """Turned by hand, from the time at which the service dates its objects."""

    def __init__(self, bucket):
        bucket.put("now", b"")
        self.start_s = bucket.get_dated("now")[1]
        self.passed_s = 0.0

    def __call__(self):
        return self.start_s + self.passed_s


@pytest.fixture
def bucket():
    return Bucket("memory://", {})


@pytest.fixture
def clock(bucket):
    return Clock(bucket)


def test_another_holder_is_refused_until_the_claim_runs_out(bucket, clock):
    one, two = Claims(bucket, "one", clock=clock), Claims(bucket, "two", clock=clock)
    one.claim("job")
    with pytest.raises(StoreError, match=r"'job' in memory:.* is claimed .* by process \d+"):
        two.claim("job")
    clock.passed_s = CLAIM_TTL_S + 2
    two.claim("job")
    clock.passed_s = CLAIM_TTL_S / 2  # two's claim is dated by the service, not by this clock
    with pytest.raises(StoreError, match="claimed for writing"):
        one.claim("job")


def test_processes_of_one_cluster_share_a_claim(bucket, clock):
    for _ in range(2):
        Claims(bucket, "run", clock=clock).claim("job")
    with pytest.raises(StoreError):
        Claims(bucket, None, clock=clock).claim("job")


def test_a_released_claim_is_free_at_once(bucket, clock):
    one, two = Claims(bucket, None, clock=clock), Claims(bucket, None, clock=clock)
    for job in ("a", "b/c"):
        one.claim(job)
    one.release("a")
    two.claim("a")
    one.release_all()
    two.claim("b/c")
    one.release("b/c")
    with pytest.raises(StoreError):
        one.claim("b/c")


def test_a_claim_that_cannot_be_read_binds_nobody(bucket, clock):
    bucket.put(".claims/job.json", b"{")
    Claims(bucket, "one", clock=clock).claim("job")
