"""Reports keep their order, and that a lease ended goes with what its task tells."""

import pytest

from plexrl.core.states import Tier
from plexrl.runtime.messages import REPORT, unpack
from plexrl.runtime.reporting import Reporter
from plexrl.services.reports import LeaseEnded, LeaseStarted, ServiceSnapshot
from solver.trace import Outcome

STARTED = LeaseStarted("f", "g", 1.0)
ENDED = LeaseEnded("f", "g", 1.0, 2.0, 0.0, Tier.HOST, 0, Outcome.DONE, ServiceSnapshot())


class Worker:
    """An event loop that the test turns, and a stream that keeps what is sent."""

    def __init__(self):
        self.loop, self.sent = self, []
        self.callbacks, self.timers = [], []

    def add_callback(self, function, *args):
        self.callbacks.append(lambda: function(*args))

    def call_later(self, _seconds, function):
        self.timers.append(function)

    def batched_send(self, message):
        assert message["op"] == REPORT
        self.sent.append(unpack(message["payload"]))

    def turn(self):
        for waiting in (self.callbacks, self.timers):
            while waiting:
                waiting.pop(0)()


@pytest.fixture
def worker():
    return Worker()


def test_a_lease_that_began_is_told_without_anything_else(worker):
    Reporter(worker).take(STARTED)
    assert worker.sent == []
    worker.turn()
    assert worker.sent == [STARTED]


def test_a_lease_that_ended_wakes_nobody_until_dask_tells_of_its_task(worker):
    reporter = Reporter(worker)
    reporter.take(ENDED)
    worker.turn()
    assert worker.sent == []
    reporter.tell()
    assert worker.sent == [ENDED]


def test_a_short_lease_is_told_of_from_its_begin_to_its_end(worker):
    reporter = Reporter(worker)
    reporter.take(STARTED)
    reporter.take(ENDED)
    reporter.tell()
    worker.turn()
    assert worker.sent == [STARTED, ENDED]
