"""Suites follow the published shapes, and draws are functions of workload and seed."""

from __future__ import annotations

import random
from statistics import fmean

import pytest

from plexrl.cli.shapes import published_shapes
from solver.errors import ProblemError
from solver.workloads import (
    Footprint,
    Phase,
    Role,
    Tail,
    Workload,
    agentic_suite,
    draw,
    length_ticks,
    memory_suite,
    mixed_suite,
    pool_suite,
    rollmux_suite,
)
from tests.solver.sharing import loop

SHAPES = published_shapes()


def test_the_same_seed_draws_the_same_lengths_and_more_of_them_go_on():
    job = loop("a")
    assert draw(job, 3, 10) == draw(job, 3, 20)[:10]
    assert draw(job, 3, 10) != draw(job, 4, 10)


@pytest.mark.parametrize("tail", list(Tail))
def test_the_mean_of_the_draws_is_the_mean_asked_for(tail):
    rows = draw(loop("a", 60, 30, cv=0.3), 0, 4000, tail)
    assert fmean(row[0] for row in rows) == pytest.approx(60_000, rel=0.05)
    assert fmean(row[1] for row in rows) == pytest.approx(30_000, rel=0.05)


def test_a_heavy_tail_is_heavier_than_a_lognormal_one_and_is_cut_off():
    lengths = [length_ticks(random.Random(i), 1000, 0.25, Tail.PARETO) for i in range(2000)]
    assert max(lengths) / min(lengths) == pytest.approx(5.0, rel=0.02)


def test_both_tails_leave_the_generator_where_the_other_does():
    first, second = random.Random(1), random.Random(1)
    length_ticks(first, 1000, 0.25, Tail.PARETO)
    length_ticks(second, 0, 0.0, Tail.LOGNORMAL)
    assert first.random() == second.random()


def test_rollmux_jobs_lie_within_table_6():
    for job in rollmux_suite(SHAPES, 0, num_jobs=50, slowdown_limit=None):
        profile, size = job.name.split("-")[-2:]
        ranges = SHAPES["rollmux_table6"]["profiles"][profile][size]
        low, high = ranges["rollout"]
        assert low <= job.role_s(Role.ROLLOUT) <= high
        assert 1.0 <= job.slowdown_limit <= 2.0


def test_states_alone_take_less_memory_than_processes_and_change_no_length():
    processes, states = (
        rollmux_suite(SHAPES, 0, num_jobs=20, slowdown_limit=1.5, footprint=footprint)
        for footprint in (Footprint.PROCESSES, Footprint.STATES)
    )
    for full, kept in zip(processes, states, strict=True):
        assert kept.memory_bytes < full.memory_bytes
        assert 3 * kept.bytes_for(Role.ROLLOUT) == kept.memory_bytes
        assert kept.bytes_for(Role.ROLLOUT) < full.bytes_for(Role.ROLLOUT)
        assert draw(kept, 1, 5) == draw(full, 1, 5)
        assert kept.phases == full.phases
    large = next(job for job in states if job.name.endswith("large"))
    assert large.memory_bytes == 2 * 12 * 14 * 10**9


def test_pool_jobs_train_for_the_share_that_is_no_bubble():
    for job in pool_suite(SHAPES, "235B", 1, num_jobs=10):
        assert job.role_s(Role.TRAIN) / job.mean_s == pytest.approx(1 - 0.8111)
        assert job.slowdown_limit == 1.25


def test_half_the_agents_alternate_between_generation_and_tools():
    jobs = agentic_suite(SHAPES, 0, num_jobs=10)
    assert sum(job.name.endswith("swe_32b") for job in jobs) == 5
    assert [phase.name for phase in jobs[0].phases][:4] == [
        "rollout.0",
        "wait.0",
        "rollout.1",
        "wait.1",
    ]


def test_suites_of_another_seed_are_others():
    for suite in (mixed_suite, memory_suite, agentic_suite):
        assert suite(SHAPES, 0, num_jobs=8) == suite(SHAPES, 0, num_jobs=8)
        assert suite(SHAPES, 0, num_jobs=8) != suite(SHAPES, 1, num_jobs=8)


@pytest.mark.parametrize("mean_s", [0.0, -1.0, float("nan"), float("inf")])
def test_a_phase_without_a_sensible_length_is_refused(mean_s):
    with pytest.raises(ProblemError, match="phase 'train'"):
        Phase("train", Role.TRAIN, mean_s, 0.1)


def test_a_limit_below_one_and_an_empty_suite_are_refused():
    with pytest.raises(ProblemError, match=r"slowdown_limit=0\.5"):
        Workload("a", loop("a").phases, 0.5)
    with pytest.raises(ProblemError, match="num_jobs is 0"):
        mixed_suite(SHAPES, 0, num_jobs=0)
