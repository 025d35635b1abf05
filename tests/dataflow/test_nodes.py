import dask
import numpy as np
import pytest

from dataflow.calls import LLMCall, Trained, VersionToken
from dataflow.errors import NoServiceError, PipelineError
from dataflow.nodes import Scored, run_node
from dataflow.phases import Phase
from dataflow.samples import Rewards

TOKEN = VersionToken("job", "actor", 1, "d")
TRAIN = LLMCall("job", "actor", Phase.TRAIN, 1, 0, 1, 7)


class Remembering:
    def __call__(self, call, inputs):
        self.inputs = inputs
        return call.op


@pytest.fixture
def service(monkeypatch):
    running = Remembering()
    monkeypatch.setattr("dataflow.calls._executors", [running])
    return running


def test_a_trained_result_serves_as_a_token(service):
    call = LLMCall("job", "actor", Phase.ROLLOUT, 1, 0, 1, 7)
    run_node(call, Trained(TOKEN, ()), ("prompt",))
    assert service.inputs == (TOKEN, ("prompt",))


@pytest.mark.usefixtures("service")
@pytest.mark.parametrize(
    "token",
    [
        VersionToken("job", "actor", 2, "d"),
        VersionToken("job", "critic", 1, "d"),
        VersionToken("other", "actor", 1, "d"),
        "token",
    ],
)
def test_a_token_of_another_version_model_or_job_is_refused(token):
    with pytest.raises(PipelineError, match=r"actor\.train\.0 of job 'job'"):
        run_node(TRAIN, token, (), (), None, None)


@pytest.mark.parametrize("form", [list, tuple, np.array])
def test_advantages_come_in_any_form_of_numbers(service, make_sample, form):
    samples = [make_sample(), make_sample(sample=1)]
    run_node(TRAIN, TOKEN, samples, form([1, -1]), [0.5, 0.25], None)
    assert service.inputs == (TOKEN, tuple(samples), (1.0, -1.0), Rewards((0.5, 0.25)), None)


def test_scored_samples_bring_their_rewards(service, make_sample):
    scored = Scored(Rewards((0.5,), delay_s=2.0), (1.0,))
    run_node(TRAIN, TOKEN, [make_sample()], scored, None, None)
    assert service.inputs[2:4] == ((1.0,), scored.rewards)


@pytest.mark.usefixtures("service")
@pytest.mark.parametrize(
    ("advantages", "problem"),
    [
        ([1.0, 2.0], "2 advantages for 1 samples"),
        ([float("nan")], r"advantages\[0\] is nan"),
        (1.0, "advantages are float"),
    ],
)
def test_wrong_advantages_are_named(make_sample, advantages, problem):
    with pytest.raises(PipelineError, match=problem):
        run_node(TRAIN, TOKEN, [make_sample()], advantages, None, None)


@pytest.mark.usefixtures("service")
@pytest.mark.parametrize("samples", [(), ["text"], None])
def test_train_needs_samples(samples):
    with pytest.raises(PipelineError, match="non-empty sequence of samples"):
        run_node(TRAIN, TOKEN, samples, (), None, None)


def test_a_plain_scheduler_says_that_there_is_no_service(make_job, begin):
    it = begin(make_job(lambda _: None))
    node = it.actor.generate(it.prompts)
    with pytest.raises(NoServiceError, match=r"rollout of job 'sorter'.*plexrl\.LocalCluster"):
        node.compute(scheduler="synchronous")


@pytest.mark.usefixtures("service")
def test_optimisation_keeps_llm_functions_apart(make_job, begin):
    it = begin(make_job(lambda _: None))
    second = it.actor.generate(dask.delayed(tuple)(it.actor.generate(it.prompts)))
    with dask.config.set({"optimization.fuse.delayed": True}):
        (optimised,) = dask.optimize(second)
    ops = [
        layer.annotations["plexrl"]["op"]
        for layer in optimised.dask.layers.values()
        if layer.annotations
    ]
    assert sorted(ops) == ["actor.rollout.0", "actor.rollout.1"]


def test_a_field_of_a_node_is_an_ordinary_input_of_an_llm_node(make_job, begin):
    it = begin(make_job(lambda it: it))
    pair = dask.delayed(complex)(1.0, 2.0)
    node = it.actor.train(it.actor.generate(it.prompts), pair.real)
    annotated = [
        n for n, layer in node.dask.layers.items() if "plexrl" in (layer.annotations or {})
    ]
    assert sorted(name.partition("-")[0] for name in annotated) == ["rollout", "train"]
