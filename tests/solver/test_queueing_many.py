"""Many cells looked at together come to what each comes to by itself."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from solver.arrangements import make_cell
from solver.cellvalue import LEAST_TOGETHER, Effort, appraise, appraise_each
from solver.queueing import Turn, queue_ends
from solver.queueing_many import MOST_GROUPS, Meeting, is_plain, queue_ends_many
from solver.scoring import horizon_s, tolerances
from solver.workloads import Phase, Role
from tests.solver.sharing import COLOCATED, POOL, SPLIT, loop

POOLED = replace(SPLIT, max_seats=3)


def jobs(num, rng):
    found = []
    for index in range(num):
        job = loop(
            f"j{index}",
            rng.uniform(20, 90),
            rng.uniform(20, 90),
            rng.choice((0, 30)),
            limit=rng.uniform(1.2, 2.5),
        )
        phases = (*job.phases, Phase("more", Role.TRAIN, rng.uniform(5, 20), 0.3))
        swaps = {"rollout_swap_s": 2.0, "train_swap_s": 3.0, "train_copy_s": rng.uniform(0, 50)}
        found.append(replace(job, phases=phases, **swaps))
    return found


def meetings(market, count, *, seed=0):
    rng = random.Random(seed)
    there, found = jobs(9, rng), []
    for _ in range(count):
        here = rng.sample(there, rng.randint(1, 5))
        groups = {"num_rollout": rng.randint(1, 2), "num_train": rng.randint(1, 2)}
        cell = make_cell(market, here, **groups)
        until_s = horizon_s(cell, rng.randint(3, 9))
        compiled = cell.compile(seed, until_s)
        found.append(Meeting(compiled, until_s, tuple(tolerances(here).values())))
    return found


@pytest.mark.parametrize("market", [COLOCATED, SPLIT, POOLED, POOL])
@pytest.mark.parametrize("turn", list(Turn))
@pytest.mark.parametrize("is_kept", [False, True])
def test_together_cells_come_to_what_each_comes_to_by_itself(market, turn, is_kept):
    asked = meetings(market, 30)
    assert all(is_plain(meeting.jobs) for meeting in asked)
    together = queue_ends_many(asked, turn=turn, is_kept=is_kept)
    for meeting, found in zip(asked, together, strict=True):
        alone = queue_ends(
            meeting.jobs,
            meeting.horizon_s,
            turn=turn,
            is_kept=is_kept,
            tolerances=meeting.tolerances,
        )
        assert found == [(len(ends), ends[-1] if ends else 0) for ends in alone]


def test_the_first_of_a_cell_does_not_depend_on_how_long_others_last():
    short, long = meetings(POOLED, 1)[0], meetings(POOLED, 1, seed=1)[0]
    others = [replace(long, horizon_s=20 * long.horizon_s / n) for n in range(20, 200)]
    assert queue_ends_many([short, *others])[0] == queue_ends_many([short])[0]


def test_a_job_whose_tape_is_at_its_end_is_seen_no_more():
    for meeting in meetings(POOLED, 10):
        short = [replace(j, iterations=3, tape=j.tape[:3]) for j in meeting.jobs]
        found = queue_ends_many([replace(meeting, jobs=short)])[0]
        alone = queue_ends(short, meeting.horizon_s, tolerances=meeting.tolerances)
        assert found == [(len(ends), ends[-1] if ends else 0) for ends in alone]


def test_nothing_is_asked_of_no_cells():
    assert queue_ends_many([]) == []


def test_jobs_that_run_ahead_or_yield_or_hold_several_groups_at_once_are_not_looked_at_together():
    def compiled(market, **changes):
        job = replace(loop("j"), **changes)
        return make_cell(market, [job], num_rollout=2, num_train=2).compile(0, 500.0)

    assert is_plain(compiled(POOLED))
    assert not is_plain(compiled(replace(POOLED, staleness=1)))
    assert not is_plain(compiled(replace(POOLED, is_yielding=True)))
    assert not is_plain(compiled(SPLIT, train_width=2))
    crowd = replace(POOLED, max_seats=MOST_GROUPS + 1)
    wide = make_cell(crowd, [loop("j")], num_rollout=1, num_train=MOST_GROUPS)
    assert not is_plain(wide.compile(0, 500.0))


@pytest.mark.slow
def test_a_value_is_the_same_however_many_cells_are_valued_with_it():
    rng = random.Random(0)
    there = jobs(9, rng)
    cells = [
        make_cell(POOLED, rng.sample(there, rng.randint(1, 4)), num_rollout=2, num_train=2)
        for _ in range(LEAST_TOGETHER)
    ]
    effort = Effort(cycles=6, turn=Turn.SMALLEST_SHARE_FIRST)
    assert appraise_each(cells, effort) == [appraise(cell, effort) for cell in cells]
