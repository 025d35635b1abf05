"""What a job committed, in bounded memory."""

import pytest

from plexrl.core.iterations import IterationLog
from solver.trace import IterationRecord


def log_of(*indices, max_records=10):
    log = IterationLog(max_records)
    for index in indices:
        log.append(IterationRecord("a", index, float(index), index + 0.5))
    return log


def test_the_oldest_records_of_a_long_job_leave_memory_but_still_count():
    log = log_of(*range(7), max_records=3)
    assert [record.iteration for record in log] == [4, 5, 6]
    assert (log.num, log.total_s, log.mean_s) == (7, 3.5, 0.5)
    assert log.first.iteration == 0
    assert log.last.iteration == 6


@pytest.mark.parametrize(("keep", "num"), [(0, 0), (2, 2), (5, 3)])
def test_a_rollback_takes_iterations_back(keep, num):
    log = log_of(0, 1, 2)
    log.truncate(keep)
    assert (len(log), log.num, log.total_s) == (num, num, num * 0.5)
    assert (log.first is None) == (num == 0)


def test_nothing_committed_has_no_mean():
    assert IterationLog().mean_s is None
    assert IterationLog().last is None
