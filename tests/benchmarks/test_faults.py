"""The fault injection finds nothing in the real store, and would find what a bad one does."""

import pytest

from benchmarks import __main__ as runner
from benchmarks.faults import state
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
    monkeypatch.setattr(version_files, "crc32c", lambda *_: 0)
    monkeypatch.setattr(partial, "crc32c", lambda *_: 0)
    monkeypatch.setattr(version_files, "digest_of_grains", lambda *_: "same")
    monkeypatch.setattr(partial, "digest_of_grains", lambda *_: "same")
    monkeypatch.setattr(state, "digest_of", lambda _: "same")
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
