"""Commits that no driver lived to report."""

from dataflow.calls import Trained, VersionToken
from plexrl.runtime.commits import CommitLog
from solver.trace import LeaseRecord


def commit(log, iteration):
    token = VersionToken("a", "actor", iteration + 1, "d")
    lease = LeaseRecord(
        f"t{iteration}", "a", "actor", "actor.train.0", iteration, iteration, "g",
        0.0, 1.0, 2.0, 0.0, "host", 0,
    )  # fmt: skip
    log.note(lease, Trained(token, (("reward_mean", 0.5),)))
    return token


def test_services_fill_the_gap_a_dead_driver_left():
    log = CommitLog()
    confirmed = commit(log, 0)
    log.confirm("a", 0, [confirmed])
    commit(log, 1)
    newest = commit(log, 2)
    assert [record.iteration for record in log.catch_up("a", 1, 3)] == [1, 2]
    assert log.tokens("a") == {"actor": newest}
    assert list(log.catch_up("a", 1, 3)) == []


def test_a_hole_ends_the_catching_up():
    log = CommitLog()
    commit(log, 2)
    assert list(log.catch_up("a", 1, 3)) == []
