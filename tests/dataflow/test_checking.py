import dask
import pytest

from dataflow import scoring
from dataflow.checking import PlannedOp, check_job
from dataflow.errors import DataError, PipelineError
from dataflow.jobs import Commit, ModelSpec


def simple(it):
    samples = it.actor.generate(it.prompts)
    return it.actor.train(samples, scoring.node("ascending", "grpo_batch", samples))


def branching(it):
    samples = it.actor.generate(it.prompts)
    own = it.actor.logprobs(samples)
    other = it.reference.logprobs(samples)
    advantages = dask.delayed(lambda *_: [1.0] * 16)(own, other)
    return it.actor.train(samples, advantages)


def adaptive(it):
    samples = it.actor.generate(it.prompts)
    yield samples
    return it.actor.train(samples, [1.0] * 16)


def test_ops_come_in_order_with_their_hints(make_job):
    hints = {"actor.rollout.0": 0.1, "wait:actor.rollout.0": 0.5}
    assert check_job(make_job(simple, hints_s=hints)) == (
        PlannedOp("actor.rollout.0", 0.1, 0.5),
        PlannedOp("actor.train.0", None, None),
    )


def test_of_two_branches_the_longer_one_counts(make_job):
    hints = {"actor.logprob.0": 0.1, "reference.logprob.0": 3.0}
    ops = [planned.op for planned in check_job(make_job(branching, hints_s=hints))]
    assert ops == ["actor.rollout.0", "reference.logprob.0", "actor.train.0"]


def test_hints_say_what_a_generator_has_not_built_yet(make_job):
    hints = {"actor.train.0": 0.2, "wait:actor.rollout.0": 0.1}
    assert check_job(make_job(adaptive, hints_s=hints)) == (
        PlannedOp("actor.rollout.0", None, 0.1),
        PlannedOp("actor.train.0", 0.2, None),
    )


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"name": "a/b"}, "job name 'a/b'"),
        ({"name": "../a"}, "job name"),
        ({"name": ""}, "job name ''"),
        ({"models": {}}, "has no model"),
        ({"models": {"prompts": ModelSpec("f")}}, "model name 'prompts'"),
        ({"models": {"my model": ModelSpec("f")}}, "model name 'my model'"),
        ({"models": {"actor": ModelSpec("")}}, "'actor' has the folder ''; give the path"),
        ({"models": {"actor": ModelSpec("f", is_trainable=False)}}, "only frozen models"),
        ({"pipeline": 3}, "pipeline is int"),
        ({"iterations": 0}, "iterations is 0"),
        ({"iterations": 1.5}, "iterations is 1.5"),
        ({"num_prompts": 0}, "num_prompts is 0"),
        ({"staleness": -1}, "staleness is -1"),
        ({"commit": Commit(every_iterations=0)}, "every_iterations is 0"),
        ({"seed": "1"}, "seed is '1'"),
        ({"slowdown_limit": 0.5}, "slowdown_limit is 0.5"),
        ({"slowdown_limit": float("nan")}, "slowdown_limit is nan"),
        ({"weight": 0}, "weight is 0"),
        ({"hints_s": {"actor.rollout.0": -1.0}}, "hint for 'actor.rollout.0' is -1.0"),
        ({"hints_s": {"actor.rolout.0": 1.0}}, "hint for 'actor.rolout.0', which its pipeline"),
        ({"pipeline": lambda it: it.actor.generate(it.prompts)}, "trains nothing"),
    ],
)
def test_a_job_that_cannot_run_is_refused_before_it_starts(make_job, changes, problem):
    job = make_job(**{"pipeline": simple, **changes})
    with pytest.raises(PipelineError, match=problem):
        check_job(job)


def test_unusable_prompts_are_refused_before_the_job_starts(make_job):
    with pytest.raises(DataError, match="no method"):
        check_job(make_job(simple, prompts="data.jsonl"))
