"""Profiles follow what was measured, in bounded memory."""

from __future__ import annotations

from dataclasses import replace

import pytest

from plexrl.planning.facts import PlannedJob
from plexrl.planning.profiles import WINDOW, JobProfile, Quantiles
from solver.trace import LeaseRecord, Outcome


def lease(op, iteration, start_s, length_s, *, job="a", swap_s=0.0, ready_s=None, outcome="done"):
    return LeaseRecord(
        id=f"{job}.{op}.{iteration}@{start_s}",
        job=job,
        model="actor",
        op=op,
        iteration=iteration,
        version=iteration,
        group="group-0",
        ready_s=start_s if ready_s is None else ready_s,
        started_s=start_s,
        ended_s=start_s + length_s,
        swap_s=swap_s,
        swap_source="host" if swap_s else "device",
        swap_bytes=0,
        outcome=Outcome(outcome),
    )


HINTED = PlannedJob("a", (("roll", 2.0, 0.5), ("train", 1.0, 0.25)))


def loop(profile, iterations, *, ops=("roll", "train"), start_s=0.0, length_s=0.5, wait_s=0.1):
    now_s = start_s
    for iteration in iterations:
        for op in ops:
            profile.observe(lease(op, iteration, now_s, length_s))
            now_s += length_s + wait_s
    return now_s


def test_quantiles_of_known_samples():
    quantiles = Quantiles()
    for sample in (4.0, 1.0, 3.0, 2.0, 5.0):
        quantiles.add(sample)
    assert [quantiles.quantile(share) for share in (0.0, 0.5, 0.9, 1.0)] == [
        1.0,
        3.0,
        pytest.approx(4.6),
        5.0,
    ]


def test_no_samples_have_no_quantile():
    assert Quantiles().quantile(0.5) is None


def test_old_samples_give_way():
    quantiles = Quantiles()
    for sample in (*[100.0] * 50, *[1.0] * WINDOW):
        quantiles.add(sample)
    assert quantiles.quantile(1.0) == 1.0
    assert quantiles.num_seen == 50 + WINDOW


def test_hints_serve_until_two_samples_are_there():
    profile = JobProfile(HINTED)
    assert [(e.op, e.busy_s, e.wait_s) for e in profile.estimates()] == [
        ("roll", 2.0, 0.5),
        ("train", 1.0, 0.25),
    ]
    loop(profile, range(1))
    assert profile.estimate("roll").busy_s == 2.0
    loop(profile, range(1, 3), start_s=2.0)
    assert profile.estimate("roll").busy_s == pytest.approx(0.5)
    assert profile.estimate("roll").wait_s == pytest.approx(0.1)
    assert profile.estimate("roll").is_measured


def test_without_a_hint_one_sample_serves():
    profile = JobProfile(PlannedJob("a", (("roll", None, None),)))
    assert profile.estimates() == ()
    loop(profile, range(1), ops=("roll",))
    assert profile.estimate("roll").busy_s == pytest.approx(0.5)


@pytest.mark.parametrize("hints", [(), HINTED.ops, (("roll", None, None), ("train", 1.0, None))])
def test_a_job_is_known_exactly_where_all_its_ops_are(hints):
    profile = JobProfile(PlannedJob("a", hints))
    seen = [profile.is_known == bool(profile.estimates())]
    for iteration in range(2):
        for op in ("roll", "train"):
            profile.observe(lease(op, iteration, iteration, 0.2))
            seen.append(profile.is_known == bool(profile.estimates()))
    assert all(seen)
    assert profile.is_known


def test_the_order_of_ops_is_learned_from_the_first_iteration():
    profile = JobProfile(PlannedJob("a"))
    assert profile.estimates() == ()
    loop(profile, range(2), ops=("sample", "score", "train"))
    assert profile.sequence == ("sample", "score", "train")
    assert [estimate.op for estimate in profile.estimates()] == ["sample", "score", "train"]


def test_one_odd_iteration_does_not_change_the_order_and_two_do():
    profile = JobProfile(HINTED)
    now_s = loop(profile, range(3))
    now_s = loop(profile, range(3, 4), ops=("roll", "roll.1", "train"), start_s=now_s)
    now_s = loop(profile, range(4, 5), start_s=now_s)
    assert profile.sequence == ("roll", "train")
    loop(profile, range(5, 8), ops=("roll", "roll.1", "train"), start_s=now_s)
    assert profile.sequence == ("roll", "roll.1", "train")


def test_an_iteration_that_began_anew_teaches_no_order():
    profile = JobProfile(PlannedJob("a"))
    profile.observe(lease("roll", 0, 0.0, 0.5))
    profile.observe(lease("roll", 0, 1.0, 0.5))
    profile.observe(lease("train", 0, 2.0, 0.5))
    profile.observe(lease("roll", 1, 3.0, 0.5))
    assert profile.sequence == ()


def test_swaps_are_kept_apart_from_the_work():
    profile = JobProfile(HINTED)
    for iteration in range(4):
        swap_s = 0.2 if iteration % 2 else 0.0
        profile.observe(lease("roll", iteration, 2.0 * iteration, 1.0 + swap_s, swap_s=swap_s))
    estimate = profile.estimate("roll")
    assert estimate.busy_s == pytest.approx(1.0)
    assert estimate.swap_s == pytest.approx(0.2)
    assert profile.held_s("roll") == pytest.approx(1.1)


def test_waiting_for_the_group_is_not_taken_for_a_wait_of_the_job():
    profile = JobProfile(HINTED)
    for iteration in range(4):
        start_s = 10.0 * iteration
        profile.observe(lease("roll", iteration, start_s, 1.0))
        profile.observe(lease("train", iteration, start_s + 8.0, 1.0, ready_s=start_s + 1.5))
    assert profile.estimate("roll").wait_s == pytest.approx(0.5)


def test_failed_and_lost_leases_are_not_measured():
    profile = JobProfile(HINTED)
    for outcome in ("failed", "lost", "cancelled"):
        profile.observe(lease("roll", 0, 0.0, 99.0, outcome=outcome))
    assert profile.quantile("roll", 1.0) is None


def test_the_length_of_iterations_is_measured_from_start_to_start():
    profile = JobProfile(HINTED)
    loop(profile, range(3))
    assert profile.iteration.quantile(0.5) == pytest.approx(1.2)
    assert profile.iteration.num_seen == 2


def test_a_job_of_ever_new_ops_does_not_fill_memory():
    profile = JobProfile(HINTED)
    for iteration in range(300):
        profile.observe(lease(f"roll.{iteration}", iteration, float(iteration), 0.5))
    assert len(profile._ops) < 50


def test_a_gangs_lease_told_for_each_of_its_groups_counts_once():
    profile = JobProfile(HINTED)
    for _ in range(2):
        profile.observe(lease("roll", 0, 0.0, 0.5))
    assert profile._ops["roll"].busy.num_seen == 1


def test_a_function_in_several_leases_counts_as_one():
    profile, straight = JobProfile(HINTED), JobProfile(HINTED)
    now_s = 0.0
    for iteration in range(4):
        first = replace(lease("roll", iteration, now_s, 0.5, outcome="yielded"), id=f"r{iteration}")
        last = replace(lease("roll", iteration, now_s + 2.0, 0.75), id=f"r{iteration}")
        train = lease("train", iteration, now_s + 3.0, 0.5)
        for record in (first, last, train):
            profile.observe(record)
        straight.observe(lease("roll", iteration, now_s + 1.5, 1.25, ready_s=now_s))
        straight.observe(train)
        now_s += 4.0
    assert profile.estimates() == straight.estimates()
    assert profile.held_s("roll") == 1.25
    assert profile.iteration.last == straight.iteration.last == 4.0


def test_what_a_lost_function_had_served_does_not_count():
    profile = JobProfile(HINTED)
    for turn, (outcome, length_s) in enumerate(
        (("yielded", 5.0), ("lost", 1.0), ("done", 0.5), ("done", 0.5))
    ):
        record = lease("roll", 0, 10.0 * turn, length_s, outcome=outcome)
        profile.observe(replace(record, id="r"))
    assert profile.held_s("roll") == 0.5


def test_iterations_that_overlap_are_told_apart():
    profile = JobProfile(PlannedJob("a", staleness=1))
    for iteration in range(4):
        # The next rollout runs while this iteration trains.
        if iteration == 0:
            profile.observe(stale_lease("actor.rollout.0", 0, 0.0, 0.4))
        profile.observe(
            stale_lease("actor.rollout.0", iteration + 1, iteration + 0.4, iteration + 0.8)
        )
        profile.observe(stale_lease("actor.train.0", iteration, iteration + 0.5, iteration + 1.0))
    assert profile.sequence == ("actor.rollout.0", "actor.train.0")
    assert [e.busy_s for e in profile.estimates()] == pytest.approx([0.4, 0.5])
    assert profile.iteration.quantile(0.5) == pytest.approx(1.0)


def stale_lease(op, iteration, ready_s, ended_s):
    return LeaseRecord(
        f"{op}.{iteration}", "a", "actor", op, iteration, iteration, "g",
        ready_s, ready_s, ended_s, 0.0, "device", 0,
    )  # fmt: skip
