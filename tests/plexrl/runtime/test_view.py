import pytest

from plexrl.errors import ConfigError
from plexrl.runtime.ledger import FunctionEntry, Ledger
from plexrl.runtime.view import show
from plexrl.services.reports import LeaseEnded, ServiceSnapshot
from solver.trace import Outcome


def test_no_faces_are_shown_where_none_are_named():
    show("", None, None)


@pytest.mark.parametrize("name", ["plexrl.no_such_module", "plexrl.clock"])
def test_faces_that_cannot_be_installed_are_named(name):
    with pytest.raises(ConfigError, match=f"plexrl.cluster.faces is '{name}'"):
        show(name, None, None)


def test_leases_can_be_read_from_where_one_stopped():
    ledger = Ledger(0.0)
    for number in range(5):
        key = f"f{number}"
        ledger.know(FunctionEntry(key, "a", "actor", "actor.train.0", number, number, None))
        ledger.started(key, float(number))
        snapshot = ServiceSnapshot()
        ledger.ended(
            LeaseEnded(key, "g", number, number + 1, 0.0, "host", 0, Outcome.DONE, snapshot)
        )
    assert ledger.num_ended == 5
    assert [lease.iteration for lease in ledger.leases(3)] == [3, 4]
    assert ledger.leases(5) == ()
    assert len(ledger.leases()) == 5
