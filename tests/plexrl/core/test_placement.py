"""Phases and models of a job, and the groups they run on."""

import pytest

from dataflow.jobs import ARRANGEMENTS
from plexrl.core.placement import Arrangement, Placement, check_pins
from plexrl.errors import JobError

SPLIT = Placement.of("g0", {"rollout": "g1", "reference.logprob": "g2"})


def test_users_and_tables_know_the_same_arrangements():
    assert set(ARRANGEMENTS) == set(Arrangement)


def test_a_model_and_phase_goes_before_a_phase_and_that_before_home():
    assert SPLIT.group("actor", "rollout") == "g1"
    assert SPLIT.group("reference", "logprob") == "g2"
    assert SPLIT.group("actor", "logprob") == "g0"
    assert SPLIT.group_of_op("reference.logprob.0") == "g2"
    assert SPLIT.group_of_op("actor.train.0") == "g0"


def test_the_home_stands_first_and_what_names_it_is_left_out():
    assert SPLIT.groups == ("g0", "g2", "g1")
    assert str(SPLIT) == "g0+g2+g1"
    assert Placement.of("g0", {"rollout": "g0"}) == Placement("g0")
    assert Placement("g0").guests == ()


def test_a_sync_holds_where_the_model_samples_and_its_home_at_once():
    assert SPLIT.lease_groups("actor.sync.0", is_setup=False) == ("g1", "g0")
    assert SPLIT.lease_groups("actor.sync.0", is_setup=True) == ("g0",)
    assert SPLIT.lease_groups("actor.rollout.1", is_setup=False) == ("g1",)
    assert Placement("g0").lease_groups("actor.sync.0", is_setup=False) == ("g0",)


@pytest.mark.parametrize("key", ["critic.rollout", "actor.train", "reward", "sync", ""])
def test_what_cannot_be_placed_is_refused_by_name(key):
    with pytest.raises(JobError, match=f"job 'a' places '{key}' on 'g1'; name 'train'"):
        check_pins("a", {key: "g1"}, {"actor": None})


def test_phases_and_models_may_be_placed():
    check_pins("a", {"train": "g", "rollout": "g", "actor.logprob": "g"}, {"actor": None})
