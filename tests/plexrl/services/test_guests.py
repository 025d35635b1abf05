"""Copies of weights between groups: the right bytes or none, from the home or from the store."""

import os
from dataclasses import replace

import numpy as np
import pytest

from dataflow.calls import AttachOptions, VersionToken
from plexrl.clock import system_clock
from plexrl.core.layout import pack
from plexrl.core.states import Manifest, StateRef, Tier
from plexrl.errors import ServiceError, StateError, StoreAwayError, VersionFenceError
from plexrl.services import guests, lending
from plexrl.services.guests import Guests, Hosted
from plexrl.services.lending import Lending, weights_bytes
from plexrl.services.service import GroupService
from plexrl.state.checksums import digest_of
from plexrl.state.manager import StateManager
from plexrl.state.zarr_store import ZarrStore

LAYOUT = pack([("w", "weights", "float32", (5000,)), ("m/w", "optimizer", "float32", (5000,))])
HOME = "tcp://home"


class Directly:
    """Peers in one process: calls the lender itself."""

    def __init__(self, lender):
        self.lender = lender
        self.is_away = False
        self.num_reads = 0
        self.spoil = False

    def lend(self, address, ref):
        if self.is_away or address != HOME:
            raise ServiceError("gone")
        return self.lender.lend(ref)

    def read(self, _address, number, start, nbytes):
        self.num_reads += 1
        found = self.lender.read(number, start, nbytes)
        return bytes(len(found)) if self.spoil else found

    def give_back(self, _address, number):
        self.lender.give_back(number)


class Pair:
    """A home with a committed version, and a group that samples for it."""

    def __init__(self, folder):
        self.store = ZarrStore(folder, durable=False)
        self.home = StateManager(self.store, host_budget_bytes=4 * LAYOUT.nbytes)
        self.guest = StateManager(self.store, host_budget_bytes=LAYOUT.nbytes)
        self.peers = Directly(Lending(self.home, system_clock))
        self.guests = Guests("g1", self.guest, self.peers)
        self.guests.host(self.hosted())

    def hosted(self, **changes):
        models = {"actor": AttachOptions("folder", True, num_versions=1)}
        return Hosted("job", **{"home": HOME, "is_home": False, "models": models} | changes)

    def service(self, **changes):
        """The service of the home, as long as it needs no engine."""
        given = {
            "states": self.home,
            "start_engine": lambda source: pytest.fail(f"{source} needs no engine here"),
            "peers": self.peers,
            "current_id": lambda: "f",
            "report": lambda _report: None,
            "open_store": lambda _name: pytest.fail("no store is opened here"),
            "lease_timeout_s": 10.0,
            "hold_timeout_s": 1.0,
        }
        return GroupService("g", **given | changes)

    def commit(self, version, seed=0, durable=False):
        ref = StateRef("job", "actor", version)
        arena = self.home.allocate(ref, LAYOUT)
        generator = np.random.default_rng((seed, version))
        np.frombuffer(arena.view, np.uint8)[:] = generator.integers(
            0, 256, len(arena.view), dtype=np.uint8
        )
        manifest = Manifest(ref, LAYOUT, digest_of(arena.view), version, version, version, 0)
        self.home.commit(manifest, arena, durable=durable)
        return VersionToken("job", "actor", version, manifest.digest), bytes(arena.view)

    def bring(self, token):
        fetched = self.guests.bring(self.guests.get("job"), token)
        found = bytes(fetched.arena.view), fetched.source
        self.guest.release(fetched.manifest.ref)
        return found

    def close(self):
        self.guest.close()
        self.home.close()
        self.store.close()


@pytest.fixture
def pair(tmp_path):
    pair = Pair(tmp_path / "store")
    yield pair
    pair.close()


@pytest.fixture
def over_the_network(monkeypatch):
    monkeypatch.setattr(guests, "copy_shared", lambda *_: False)
    monkeypatch.setattr(guests, "READ_BYTES", 6000)


def test_a_copy_has_the_weights_and_no_more(pair):
    token, whole = pair.commit(0)
    copy, source = pair.bring(token)
    assert copy == whole[: len(copy)]
    assert LAYOUT.slots[0].nbytes <= len(copy) < LAYOUT.nbytes
    assert source is Tier.GROUP
    assert pair.peers.num_reads == 0


def test_what_was_copied_ahead_is_there_when_it_is_needed(pair):
    token, _ = pair.commit(0)
    pair.guests.copy(StateRef("job", "actor", 0))
    pair.peers.is_away = True
    assert pair.bring(token)[1] is Tier.HOST


@pytest.mark.usefixtures("over_the_network")
def test_without_shared_memory_the_bytes_come_in_pieces(pair):
    token, whole = pair.commit(0)
    copy, source = pair.bring(token)
    assert copy == whole[: len(copy)]
    assert source is Tier.GROUP
    assert pair.peers.num_reads == -(-len(copy) // 6000)


@pytest.mark.usefixtures("over_the_network")
def test_bytes_that_changed_on_the_way_are_not_used(pair):
    token, whole = pair.commit(0, durable=True)
    pair.home.wait_durable(StateRef("job", "actor", 0), 30)
    pair.peers.spoil = True
    copy, source = pair.bring(token)
    assert (copy, source) == (whole, Tier.STORE)


@pytest.mark.usefixtures("over_the_network")
def test_bytes_that_changed_and_are_nowhere_else_send_the_job_back(pair):
    token, _ = pair.commit(0)
    pair.peers.spoil = True
    with pytest.raises(ServiceError, match="copy of job/actor@0 on group 'g1': the bytes have"):
        pair.bring(token)
    assert pair.guest.resident()[Tier.HOST] == ()


def test_while_the_home_is_away_the_store_serves(pair):
    token, whole = pair.commit(0, durable=True)
    pair.home.wait_durable(StateRef("job", "actor", 0), 30)
    pair.peers.is_away = True
    assert pair.bring(token) == (whole, Tier.STORE)


def test_a_version_that_is_nowhere_sends_the_job_back(pair):
    token, _ = pair.commit(0)
    pair.peers.is_away = True
    with pytest.raises(ServiceError, match=r"gets no job/actor@0: from its home: gone") as caught:
        pair.bring(token)
    assert caught.value.is_recoverable


def test_a_copy_of_a_history_that_was_rolled_back_is_replaced(pair, tmp_path):
    other = Pair(tmp_path / "other")
    stale, _ = other.commit(0, seed=1)
    pair.guests.host(pair.hosted())
    elsewhere, pair.peers.lender = pair.peers.lender, other.peers.lender
    pair.bring(stale)
    pair.peers.lender = elsewhere
    token, whole = pair.commit(0)
    copy, _ = pair.bring(token)
    assert copy == whole[: len(copy)]
    with pytest.raises(VersionFenceError, match="at home, but the job speaks of"):
        pair.bring(stale)
    other.close()


def test_only_the_newest_copies_stay(pair):
    for version in range(3):
        token, _ = pair.commit(version)
        pair.bring(token)
    assert pair.guest.resident()[Tier.HOST] == ("job/actor@2",)


def test_a_group_that_becomes_the_home_keeps_no_copies(pair):
    token, _ = pair.commit(0)
    pair.bring(token)
    pair.guests.host(pair.hosted(home="", is_home=True))
    assert pair.guest.resident()[Tier.HOST] == ()
    assert pair.guests.get("job") is None
    assert pair.guest.latest("job", "actor") is None


def test_a_loan_keeps_a_version_until_it_is_given_back(pair):
    pair.commit(0)
    loan = pair.peers.lender.lend(StateRef("job", "actor", 0))
    pair.commit(1)
    assert "job/actor@0" in pair.home.resident()[Tier.HOST]
    pair.peers.lender.give_back(loan.number)
    assert "job/actor@0" not in pair.home.resident()[Tier.HOST]
    with pytest.raises(ServiceError, match="is over"):
        pair.peers.lender.read(loan.number, 0, 1)


def test_a_loan_of_a_borrower_that_died_ends_by_itself(pair, monkeypatch):
    pair.commit(0)
    pair.peers.lender.lend(StateRef("job", "actor", 0))
    monkeypatch.setattr(lending, "LOAN_TIMEOUT_S", -1.0)
    pair.commit(1)
    pair.peers.lender.lend(StateRef("job", "actor", 1))
    assert "job/actor@0" not in pair.home.resident()[Tier.HOST]


def test_a_job_is_let_go_of_although_a_borrower_died(pair):
    pair.commit(0, durable=True)
    pair.peers.lender.lend(StateRef("job", "actor", 0))
    with pytest.raises(StateError, match="still in use"):
        pair.home.drop_job("job", 0.01)
    pair.peers.lender.forget("job")
    pair.home.drop_job("job", 5.0)
    assert not pair.home.resident()[Tier.HOST]


def test_memory_of_another_machine_or_another_file_is_not_read(pair):
    pair.commit(0)
    memory = pair.peers.lender.lend(StateRef("job", "actor", 0)).memory
    view = memoryview(bytearray(64))
    assert guests.copy_shared(memory, view)
    assert not guests.copy_shared(replace(memory, boot_id="another"), view)
    assert not guests.copy_shared(replace(memory, inode=memory.inode + 1), view)
    assert not guests.copy_shared(replace(memory, fd=os.sysconf("SC_OPEN_MAX")), view)


def test_the_weights_of_a_state_end_where_an_engine_without_optimizer_ends():
    manifest = Manifest(StateRef("j", "m", 0), LAYOUT, "", 0, 0, 0, 0)
    assert weights_bytes(manifest) == pack([("w", "weights", "float32", (5000,))]).nbytes


def test_a_home_that_waits_for_the_store_has_its_guests_wait_too(pair, monkeypatch):
    token, _ = pair.commit(0)

    def lend(*_):
        raise StoreAwayError("the disk is full")

    monkeypatch.setattr(pair.peers, "lend", lend)
    with pytest.raises(StoreAwayError, match="the disk is full"):
        pair.bring(token)
