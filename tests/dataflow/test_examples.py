"""The pipelines in ``examples/`` run unchanged on any service."""

import importlib.util
from pathlib import Path

import dask
import pytest

from dataflow.checking import check_job

EXAMPLES = Path(__file__).parents[2] / "examples"


def load(name):
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ["own_loss", "two_models", "adaptive_turns"])
def test_a_handwritten_pipeline_is_a_legal_job(name):
    job = load(name).job("folder")
    assert check_job(job)[0].op == "actor.rollout.0"


@pytest.mark.parametrize(
    ("name", "ops"),
    [
        ("own_loss", ["actor.rollout.0", "actor.train.0"]),
        (
            "two_models",
            ["actor.logprob.0", "actor.rollout.0", "actor.train.0", "reference.logprob.0"],
        ),
        ("adaptive_turns", ["actor.rollout.0", "actor.train.0"]),
    ],
)
def test_a_handwritten_pipeline_runs(name, ops, begin, drive, service):
    job = load(name).job("folder")
    with dask.config.set(scheduler="synchronous"):
        outputs = drive(job, begin(job)).outputs
        service.calls.clear()
        (trained,) = dask.compute(*outputs)
    assert trained.token.version == 1
    assert {call.op for call in service.calls} <= set(ops)
    assert "actor.train.0" in {call.op for call in service.calls}


def test_prompts_are_drawn_until_enough_are_informative(begin, drive, service, make_sample):
    module = load("adaptive_turns")
    job = module.job("folder")
    same = [make_sample("12345", sample=n) for n in (0, 1)]
    assert module.informative(same) == ((), ())
    mixed = [make_sample("12345"), make_sample("54321", sample=1)]
    assert module.informative(mixed) == (tuple(mixed), (1.0, pytest.approx(0.2)))
    with dask.config.set(scheduler="synchronous"):
        drive(job, begin(job))
    assert [call.op for call in service.calls] == ["actor.rollout.0"]


def test_rewards_fall_where_the_actor_leaves_its_reference(make_sample):
    module = load("two_models")
    sample = make_sample("12", token_ids=(1, 2), policy_mask=(True, True))
    penalised = module.with_kl_penalty(
        module.Rewards((1.0,)), [(-1.0, -1.0)], [(-2.0, -1.0)], [sample]
    )
    assert penalised.values == (pytest.approx(1 - module.KL_WEIGHT * 0.5),)
