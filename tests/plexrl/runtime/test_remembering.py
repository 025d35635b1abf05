"""What the log of an interrupted driver lacks is told by the versions that are still there."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from dataflow.calls import Attached, Committed, VersionToken
from plexrl.runtime.driver import JobDriver
from plexrl.runtime.messages import Drive
from plexrl.runtime.metrics_log import MetricsLog
from solver.trace import IterationRecord


@pytest.fixture
def driver(tmp_path):
    with ThreadPoolExecutor(1) as trackers:
        drive = Drive("a", b"", "run", is_resumed=True)
        yield JobDriver(drive, None, print, lambda: 0.0, str(tmp_path), trackers)


def attached(*iterations):
    pasts = tuple(Committed(i, 10.0 * i, (("reward_mean", i / 10),)) for i in iterations)
    return {"actor": Attached(VersionToken("a", "actor", 9, "d"), 9, 0, pasts)}


def test_a_gap_in_the_log_is_closed_for_all_lives_to_come(driver, tmp_path):
    log = MetricsLog(tmp_path)
    log.append(IterationRecord("a", 0, 0.0, 5.0, (("reward_mean", 0.0),)))
    found = driver._remembered(attached(1, 2), 2)
    assert [record.iteration for record in found] == [0, 1]
    assert (found[1].started_s, found[1].ended_s) == (5.0, 10.0)
    assert driver._remembered(attached(), 2) == found
    # What is done again gets its line then.
    assert list(log.read("a")) == [0, 1]
