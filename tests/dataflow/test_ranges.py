"""Numbers, words and kinds of values that no setting has are refused before anything starts."""

from dataclasses import fields, replace
from fractions import Fraction
from pathlib import Path

import pytest

from dataflow.algorithms import SETTINGS
from dataflow.checking import check_job
from dataflow.errors import DataflowError, PipelineError
from dataflow.evaluation import Evaluation
from dataflow.jobs import JobSpec, ModelSpec
from dataflow.lora import LoraSpec
from dataflow.pipelines import grpo
from dataflow.ranges import RANGES, Range, are_betas

NEVER = (float("nan"), float("-inf"), -(10**30), object(), b"?", {1: 2}, [object()], Fraction(1, 2))
SIZES = ("num_prompts", "num_samples", "max_new_tokens", "iterations", "seed", "staleness")
OTHERS = ("commit_every", "hints_s", "rollout_engine", "lora", "name", "task", "task_options")
LOOKS = ("model", "algorithm", "keep_samples", "trackers", "evaluation", "arrangement", "groups")


def job(**settings):
    return grpo(**{"model": "folder", "task": "ascending", "iterations": 2, **settings})


@pytest.mark.parametrize("name", [*SETTINGS, *SIZES, *OTHERS, *LOOKS])
def test_a_value_that_means_nothing_is_refused_by_the_name_of_its_setting(name):
    needed = {"algorithm": "ppo"} if name != "algorithm" else {}
    needed |= {"kl_coef": 0.1} if name in {"reference", "kl_estimator"} else {}
    for value in NEVER:
        with pytest.raises(DataflowError):
            check_job(job(**{**needed, name: value}))


def with_field(kind, given):
    spec = job(evaluation={})
    if kind is JobSpec:
        return replace(spec, **given)
    if kind is ModelSpec:
        return replace(spec, models={"actor": replace(spec.models["actor"], **given)})
    return replace(spec, evaluation=replace(spec.evaluation, **given))


@pytest.mark.parametrize("kind", [JobSpec, ModelSpec, Evaluation])
def test_fields_of_other_kinds_are_refused(kind):
    for field in fields(kind):
        for value in (object(), float("nan"), {1: 2}):
            with pytest.raises(DataflowError):
                check_job(with_field(kind, {field.name: value}))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"max_grad_norm": 0}, "max_grad_norm is 0; give a number above 0"),
        ({"importance_cap": 0.0}, "importance_cap is 0.0; give a number above 0"),
        ({"gae_lambda": 1.1}, "gae_lambda is 1.1; give a number of at least 0 and at most 1"),
        ({"num_epochs": 2.0}, "num_epochs is 2.0; give a whole number"),
        ({"top_p": 0}, "top_p is 0; give a number above 0 and at most 1"),
        ({"temperature": 1e-9}, "temperature is 1e-09; give 0, or a number of at least 0.01"),
        ({"betas": (0.9, 1)}, r"betas is \(0.9, 1\); give two numbers from 0 to below 1"),
        ({"lr": 1e6}, "lr is 1000000.0; give a number of at least 0 and at most 1000"),
        ({"num_samples": 10**9}, "num_samples is 1000000000; give a whole number"),
    ],
)
def test_a_number_out_of_range_is_told_with_the_range(settings, words):
    with pytest.raises(PipelineError, match=words):
        job(**settings)


def test_numbers_at_the_bounds_are_legal():
    assert 1 in RANGES["gae_lambda"]
    assert 0 in RANGES["temperature"]
    assert None in RANGES["importance_cap"]
    assert None not in RANGES["lr"]
    assert True not in Range(0, is_whole=True)
    assert are_betas([0, 0.999])
    assert not are_betas((0.9, float("nan")))


@pytest.mark.parametrize("settings", [{"temperature": 0}, {"top_k": 1}])
def test_samples_that_cannot_differ_are_refused_where_they_are_compared(settings):
    with pytest.raises(PipelineError, match="compares samples of one prompt"):
        job(algorithm="rloo", **settings)
    assert job(algorithm="reinforce_pp", **settings).pipeline.settings


def test_there_is_a_sample_for_every_minibatch():
    sizes = {"num_prompts": 2, "num_samples": 4}
    assert job(num_minibatches=8, **sizes).pipeline.settings.num_minibatches == 8
    with pytest.raises(PipelineError, match="num_minibatches is 9, but 8 samples are trained on"):
        job(num_minibatches=9, **sizes)
    with pytest.raises(PipelineError, match="num_minibatches is 5, but as few as 4 samples"):
        job(num_minibatches=5, algorithm="dapo", **sizes)


def test_a_model_may_be_given_as_a_path():
    assert job(model=Path("a") / "folder").models["actor"].folder == str(Path("a") / "folder")


@pytest.mark.parametrize("values", [{"rank": 1.5}, {"rank": "8"}, {"alpha": float("nan")}])
def test_adapters_have_a_rank_and_a_scale(values):
    with pytest.raises(PipelineError, match="lora has rank="):
        LoraSpec(**values)


def test_bounds_are_told_in_full():
    assert str(Range(1, 10**6, is_whole=True)) == "a whole number of at least 1 and at most 1000000"
    assert str(Range(0.01, has_zero=True)) == "0, or a number of at least 0.01"
