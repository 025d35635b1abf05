"""The finite timeline against job shops whose optima are known."""

import json
from itertools import pairwise
from pathlib import Path

import pytest

from solver.cpsat.cyclic import Effort, Ending
from solver.cpsat.horizon import Step, shortest_horizon

DATA = json.loads((Path(__file__).parents[1] / "data" / "jobshop.json").read_text("utf-8"))
FAST = ("ft06", "la01", "la05", "la10")


def shop(name):
    entry = DATA["instances"][name]
    rows = zip(entry["machines"], entry["durations"], strict=True)
    return [[Step(*pair) for pair in zip(*row, strict=True)] for row in rows], entry["optimum"]


def _check(jobs, answer):
    held = {}
    for job, starts in zip(jobs, answer.starts, strict=True):
        for (step, start), (_, following) in pairwise(zip(job, starts, strict=True)):
            assert following >= start + step.duration_ticks
        for step, start in zip(job, starts, strict=True):
            assert 0 <= start <= answer.length_ticks - step.duration_ticks
            held.setdefault(step.group, []).append((start, start + step.duration_ticks))
    for spans in held.values():
        assert all(end <= begin for (_, end), (begin, _) in pairwise(sorted(spans)))


@pytest.mark.slow
@pytest.mark.parametrize("name", FAST)
def test_a_job_shop_is_solved_to_its_known_optimum(name):
    jobs, optimum = shop(name)
    answer = shortest_horizon(jobs, Effort(60.0, num_workers=2))
    assert (answer.ending, answer.length_ticks, answer.bound_ticks) == (
        Ending.OPTIMAL,
        optimum,
        optimum,
    )
    _check(jobs, answer)


def test_steps_of_one_group_follow_each_other():
    answer = shortest_horizon([[Step(0, 3)], [Step(0, 4), Step(1, 2)]], Effort(10.0))
    assert (answer.ending, answer.length_ticks) == (Ending.OPTIMAL, 7)
    _check([[Step(0, 3)], [Step(0, 4), Step(1, 2)]], answer)
