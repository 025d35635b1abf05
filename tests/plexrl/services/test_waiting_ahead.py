"""What waits in a thread for the end of another function begins then, or never."""

import threading
from contextlib import contextmanager

import pytest

from dataflow.calls import LLMCall
from dataflow.phases import Phase
from plexrl.errors import LeaseError
from plexrl.services.occupancy import Occupancy
from tests.plexrl.services.test_guests import Pair

CALL = LLMCall("job", "actor", Phase.TRAIN, 0, 0, 0, 0)


@contextmanager
def service_that(tmp_path, reports, *, is_wanted):
    pair = Pair(tmp_path / "store")
    yield pair.service(report=reports.append, is_wanted=is_wanted)
    pair.close()


def test_a_function_that_was_cancelled_while_it_waited_never_begins(tmp_path):
    reports, wanted, caught = [], {"f"}, []
    with service_that(tmp_path, reports, is_wanted=wanted.__contains__) as service:

        def call():
            try:
                service(CALL, ())
            except LeaseError as error:
                caught.append(str(error))

        with service.occupancy.of("before", "the function before"):
            thread = threading.Thread(target=call)
            thread.start()
            wanted.clear()
        thread.join(10.0)
    assert caught == ["actor.train.0 of job 'job' was cancelled while it waited"]
    assert reports == []
    assert not service.occupancy.is_held_by("f")


def test_a_gang_waits_less_long_than_a_function():
    occupancy = Occupancy("g", timeout_s=1000.0, hold_timeout_s=0.01)
    with occupancy.of("before", "the function before"):
        with pytest.raises(LeaseError, match="gang 'sync' waited 0 s"):
            occupancy.hold("sync")
        assert occupancy.is_held_by("before")
    occupancy.hold("sync")
    assert occupancy.is_held_by("sync")
    occupancy.let_go("sync")
