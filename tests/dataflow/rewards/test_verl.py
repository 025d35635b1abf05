"""Reward functions written for verl are called as verl calls them."""

import pytest

from dataflow.datasets import prompts_of
from dataflow.errors import RewardError
from dataflow.rewards import IsolatedReward, VerlReward, described, resolve, score
from dataflow.samples import Sample

RECORD = {
    "prompt": "1+1=",
    "answer": "two",
    "data_source": "sums",
    "reward_model": {"style": "rule", "ground_truth": "2"},
    "extra_info": {"index": 7},
}


def samples_of(record, *texts):
    (prompt,) = prompts_of([record]).batch(0, 1)
    return [Sample(prompt, row, (1,), (5,), (True,), text=text) for row, text in enumerate(texts)]


def compute_score(data_source, solution_str, ground_truth, extra_info=None):
    assert data_source in {"sums", ""}
    assert extra_info in ({"index": 7}, None)
    return float(solution_str == ground_truth)


def with_details(solution_str, ground_truth, **_):
    return {"score": float(solution_str == ground_truth), "acc": True}


@pytest.mark.parametrize("function", [compute_score, with_details])
def test_a_function_judges_by_the_ground_truth(function):
    assert isinstance(resolve(function), VerlReward)
    assert score(function, samples_of(RECORD, "2", "two")).values == (1.0, 0.0)
    plain = {name: RECORD[name] for name in ("prompt", "answer")}
    assert score(function, samples_of(plain, "2", "two")).values == (0.0, 1.0)


@pytest.mark.slow
def test_in_a_job_file_it_runs_in_a_process_of_its_own():
    reward = described(compute_score)
    assert isinstance(reward, IsolatedReward)
    assert score(reward, samples_of(RECORD, "2", "3")).values == (1.0, 0.0)


def without_score(solution_str, ground_truth, **_):
    return {"acc": solution_str == ground_truth}


def with_text(solution_str, ground_truth, **_):
    return f"{solution_str}{ground_truth}"


def of_two(solution_str, ground_truth):
    return float(solution_str == ground_truth)


@pytest.mark.parametrize(
    ("function", "problem"),
    [
        (without_score, "raised KeyError.*'score'"),
        (with_text, "gave '22' for row 0"),
        (of_two, "raised TypeError.*data_source"),
    ],
)
def test_a_function_that_fails_is_named(function, problem):
    with pytest.raises(RewardError, match=problem):
        score(function, samples_of(RECORD, "2"))
