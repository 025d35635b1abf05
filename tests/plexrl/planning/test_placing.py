"""Jobs get the groups their arrangement asks for, or a refusal that says why."""

import pytest

from plexrl.core.placement import Arrangement, Placement
from plexrl.errors import JobError
from plexrl.planning.facts import GroupFacts, PlannedJob
from plexrl.planning.placing import place, replace_lost

TWO = [GroupFacts(f"g{i}", 100, 4) for i in range(2)]
THREE = [*TWO, GroupFacts("g2", 100, 4)]


def job(name="a", arrangement=Arrangement.ANY, memory_bytes=30, copy_bytes=10, **pins):
    return PlannedJob(
        name,
        memory_bytes=memory_bytes,
        copy_bytes=copy_bytes,
        arrangement=arrangement,
        pins=pins,
    )


def put(*jobs, groups=TWO, shares=None):
    placed = {}
    for entry in jobs:
        placed[entry.name] = (entry, place(entry, groups, placed, shares or {}))
    return {name: str(placement) for name, (_, placement) in placed.items()}


def test_left_to_the_planner_a_job_has_one_group():
    assert put(job("a"), job("b")) == {"a": "g0", "b": "g1"}


def test_a_split_job_samples_apart_from_where_it_trains():
    assert put(job("a", Arrangement.SPLIT)) == {"a": "g0+g1"}
    assert put(job("a", Arrangement.SPLIT), shares={"g0": 0.5}) == {"a": "g1+g0"}


def test_where_phases_are_fixed_the_rest_follows():
    assert put(job("a", Arrangement.SPLIT, rollout="g0")) == {"a": "g1+g0"}
    assert put(job("a", Arrangement.ASYNCHRONOUS, train="g1")) == {"a": "g1+g0"}
    assert put(job("a", rollout="g1", train="g0")) == {"a": "g0+g1"}


def test_private_rollouts_stand_beside_a_shared_training_pool():
    jobs = [job(name, Arrangement.PRIVATE_ROLLOUT) for name in "ab"]
    assert put(*jobs, groups=THREE) == {"a": "g0+g1", "b": "g0+g2"}


def test_nobody_joins_a_private_rollout_group():
    private = job("a", Arrangement.PRIVATE_ROLLOUT)
    assert put(private, job("b", memory_bytes=60)) == {"a": "g0+g1", "b": "g0"}
    with pytest.raises(JobError, match="'g1' is the private rollout group of a job"):
        put(private, job("b", memory_bytes=90))


def test_a_copy_takes_the_weights_memory_only():
    tight = job("a", Arrangement.SPLIT, memory_bytes=90, copy_bytes=95)
    assert put(tight) == {"a": "g0+g1"}
    with pytest.raises(JobError, match="needs 101 bytes"):
        put(job("a", Arrangement.SPLIT, memory_bytes=90, copy_bytes=101))


@pytest.mark.parametrize(
    ("asked", "groups", "words"),
    [
        (job("a", Arrangement.SPLIT), TWO[:1], "which needs two groups; here is g0"),
        (job("a", train="g7"), TWO, "wants train on group 'g7', which is not there.*g0, g1"),
        (job("a", Arrangement.COLOCATED, train="g0", rollout="g1"), TWO, "change one of the two"),
        (job("a", Arrangement.SPLIT, train="g0", rollout="g0"), TWO, "change one of the two"),
    ],
)
def test_what_cannot_be_had_is_said_before_anything_starts(asked, groups, words):
    with pytest.raises(JobError, match=words):
        place(asked, groups, {}, {})


def test_what_is_lost_is_replaced_and_what_is_left_stays():
    split = job("a", Arrangement.SPLIT)
    was = Placement.of("g0", {"rollout": "g1"})
    assert str(replace_lost(split, was, [THREE[0], THREE[2]], {}, {})) == "g0+g2"
    assert str(replace_lost(split, was, THREE[1:], {}, {})) == "g2+g1"
    assert str(replace_lost(split, was, [THREE[0]], {}, {})) == "g0"


def test_a_job_told_to_run_on_a_group_that_is_gone_has_no_other():
    with pytest.raises(JobError, match="wants rollout on group 'g1', which is not there"):
        replace_lost(job("a", rollout="g1"), Placement.of("g0", {"rollout": "g1"}), TWO[:1], {}, {})
