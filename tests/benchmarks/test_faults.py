"""The fault injection finds nothing in the real store, and would find what a bad one does."""

import random

import pytest

from benchmarks import __main__ as runner
from benchmarks.faults import clients, disks, lives, rows, state
from benchmarks.faults.jobs import yard
from benchmarks.faults.toll import Toll
from benchmarks.faults.victims import Moment
from plexrl.state import partial, version_files


@pytest.mark.slow
def test_no_fault_is_admitted_and_nothing_is_lost():
    tally = state.inject(3, 1, seed=5)
    assert all(tally.injected[kind] == 3 for kind in state.KINDS)
    assert tally.injected["kill_9"] > 20
    assert tally.num_commits_interrupted > 10
    assert (tally.num_corrupt_admitted, tally.num_lost) == (0, 0)


@pytest.mark.slow
def test_a_store_that_does_not_verify_is_found_out(monkeypatch):
    monkeypatch.setattr(version_files, "chunk_checksum", lambda *_: 0)
    monkeypatch.setattr(partial, "crc32c", lambda *_: 0)
    monkeypatch.setattr(partial, "checksum_of_grains", lambda *_: 0)
    monkeypatch.setattr(state, "KINDS", {"bit_flip": state.bit_flip})
    assert state.inject(20, 0, seed=5).num_corrupt_admitted > 0


@pytest.mark.slow
def test_a_store_that_loses_versions_is_found_out(monkeypatch):
    monkeypatch.setattr(
        state,
        "KINDS",
        {"none": lambda trial: trial.committed.update({state.StateRef("job", "actor", 9): b""})},
    )
    assert state.inject(1, 0, seed=5).num_lost > 0


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["faults", "--only", "stat"], "did you mean 'state'"),
        (["overhead", "--only", "state"], "has no parts"),
    ],
)
def test_an_unknown_part_is_bad_input(capsys, arguments, told):
    assert runner.main(arguments) == 2
    assert told in capsys.readouterr().err


def say(_what):
    """Progress nobody reads."""


def assert_nothing_happened(toll):
    assert toll.kills.total() > 0
    counts = (toll.num_lost_or_doubled, toll.num_hangs, toll.num_unequal, toll.num_unfinished)
    assert counts == (0, 0, 0, 0)
    assert (toll.num_plugin_errors, toll.num_left) == (0, 0)


@pytest.fixture(scope="module")
def site():
    """One cluster for faults that leave it whole."""
    ground = yard(say)
    with ground.cluster("shared") as cluster:
        yield rows.Site(ground, cluster, "shared", random.Random(0))


@pytest.mark.slow
def test_kills_of_every_kind_of_child_cost_no_iteration_and_change_no_bit(site):
    toll = Toll("children", say)
    strikes = (rows.strike_solver, rows.strike_reward, rows.strike_engine)

    def one_of_each(site, moment):
        return strikes[toll.kills.total()](site, moment)

    rows.strike_in(site, toll, one_of_each, [Moment.TRAIN], 3)
    assert_nothing_happened(toll)


@pytest.mark.slow
def test_jobs_of_a_killed_client_go_on(site):
    toll = Toll("client", say)
    clients.strike_in(site.yard, site.cluster, toll, 1, seed=0)
    assert_nothing_happened(toll)


@pytest.mark.slow
def test_jobs_wait_for_a_store_that_is_full_or_gone_and_say_so(site):
    toll = Toll("store", say)
    told = disks.strike_in(site.yard, site.cluster, toll, site.name, ("full", "gone"))
    assert told == {"pauses_without_reason": 0.0}
    assert_nothing_happened(toll)


@pytest.mark.slow
def test_a_killed_scheduler_takes_its_workers_along_and_its_jobs_are_resumed():
    toll = Toll("scheduler", say)
    lives.strike(toll, 1, seed=0)
    assert_nothing_happened(toll)
