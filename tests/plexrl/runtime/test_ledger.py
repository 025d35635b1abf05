"""The execution log: every lease ends once, whatever happens to its task meanwhile."""

import pytest

from plexrl.core.states import Tier
from plexrl.runtime.ledger import FunctionEntry, Ledger
from plexrl.services.reports import LeaseEnded, ServiceSnapshot
from solver.trace import Outcome


def entry(name="f", job="a"):
    return FunctionEntry(name, job, "actor", "actor.train.0", 0, 0, None)


def ended(name="f", started_s=101.0, ended_s=103.0, outcome=Outcome.DONE):
    return LeaseEnded(name, "g", started_s, ended_s, 0.5, Tier.HOST, 10, outcome, ServiceSnapshot())


@pytest.fixture
def ledger():
    ledger = Ledger(epoch_s=100.0)
    ledger.know(entry())
    ledger.ready("f", 100.5)
    ledger.admitted("f", ("g",))
    ledger.started("f", 101.0)
    return ledger


def test_a_lease_becomes_a_record_on_the_clusters_clock(ledger):
    record = ledger.ended(ended())
    assert (record.ready_s, record.started_s, record.ended_s) == (0.5, 1.0, 3.0)
    assert record.busy_s == 1.5
    assert ledger.leases() == (record,)


def test_a_function_dropped_while_it_holds_its_lease_still_ends(ledger):
    ledger.forget("f")
    assert ledger.ended(ended()) is not None
    assert "f" not in ledger


def test_a_rollout_that_stops_because_nobody_wants_it_was_cancelled(ledger):
    ledger.forget("f")
    assert ledger.ended(ended(outcome=Outcome.YIELDED)).outcome is Outcome.CANCELLED
    assert "f" not in ledger


def test_a_function_dropped_before_its_lease_is_gone_at_once(ledger):
    ledger.ended(ended())
    ledger.forget("f")
    assert "f" not in ledger
    assert ledger.ended(ended()) is None


def test_a_lease_that_ended_is_not_lost_with_its_group(ledger):
    ledger.ended(ended())
    ledger.lost("g", 110.0)
    assert [record.outcome for record in ledger.leases()] == [Outcome.DONE]


def test_a_lease_in_force_is_lost_with_its_group(ledger):
    ledger.lost("g", 110.0)
    (record,) = ledger.leases()
    assert (record.outcome, record.ended_s) == (Outcome.LOST, 10.0)
    assert ledger.ended(ended()) is None


def test_only_a_function_that_waits_may_be_withdrawn(ledger):
    assert not ledger.may_withdraw("f")
    ledger.ended(ended())
    assert not ledger.may_withdraw("f")
    ledger.ready("f", 104.0)
    assert ledger.may_withdraw("f")
    assert not ledger.may_withdraw("unknown")


def test_a_yielded_lease_is_kept_and_what_was_served_counts_until_the_end(ledger):
    record = ledger.ended(ended(outcome=Outcome.YIELDED))
    assert record.outcome is Outcome.YIELDED
    assert ledger["f"].served_s == record.busy_s == 1.5
    ledger.ready("f", 103.0)
    ledger.started("f", 104.0)
    assert ledger["f"].served_s == 1.5
    ledger.ended(ended(started_s=104.0, ended_s=105.0))
    assert ledger["f"].served_s == 0.0


@pytest.mark.parametrize("has_begun_again", [False, True])
def test_what_was_served_is_lost_with_the_group(ledger, has_begun_again):
    ledger.ended(ended(outcome=Outcome.YIELDED))
    ledger.ready("f", 103.0)
    if has_begun_again:
        ledger.admitted("f", "g")
        ledger.started("f", 104.0)
    ledger.lost("another", 105.0)
    assert ledger["f"].served_s == 1.5
    ledger.lost("g", 105.0)
    assert ledger["f"].served_s == 0.0
    assert (ledger["f"].ready_s is None) == has_begun_again


def test_what_no_longer_waits_is_withdrawn_once_and_is_nowhere():
    ledger = Ledger(epoch_s=100.0)
    ledger.know(entry())
    ledger.ready("f", 100.5)
    ledger.admitted("f", ("g",))
    assert ledger.may_withdraw("f")
    ledger.withdrawn("f")
    assert not ledger.may_withdraw("f")
    # Ready again, elsewhere: that its old group is lost does not concern it.
    ledger.ready("f", 101.0)
    ledger.lost("g", 102.0)
    assert ledger.may_withdraw("f")
