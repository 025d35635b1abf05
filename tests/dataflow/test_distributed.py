"""What Dask's scheduler sees of an iteration's graph, however it is computed."""

import dask
import pytest

from dataflow import scoring
from dataflow.errors import NoServiceError
from dataflow.stepping import Compute, PipelineRun

pytestmark = pytest.mark.slow

OPS = ["actor.rollout.0", "actor.train.0"]


def simple(it):
    samples = it.actor.generate(it.prompts, n=2)
    return it.actor.train(samples, scoring.node("ascending", "grpo_batch", samples))


def ops_seen(recorder):
    return sorted(str(annotation["op"]) for annotation in recorder.seen.values())


def compute(_client, node):
    return dask.compute(node)[0]


def persist(_client, node):
    return dask.persist(node)[0].compute()


def optimise(client, node):
    return client.compute(dask.optimize(node)[0]).result()


def fuse(_client, node):
    with dask.config.set({"optimization.fuse.delayed": True}):
        return dask.compute(node)[0]


def submit(client, node):
    return client.compute(node, optimize_graph=False).result()


@pytest.mark.usefixtures("service")
@pytest.mark.parametrize("way", [compute, persist, optimise, fuse, submit])
def test_annotations_reach_the_scheduler(client, recorder, make_job, begin, way):
    job = make_job(simple)
    (node,) = PipelineRun(job, begin(job)).start().outputs
    assert way(client, node).token.version == 1
    assert ops_seen(recorder) == OPS
    assert all(key.split("-")[0] in {"rollout", "train"} for key in recorder.seen)


def test_a_future_or_a_node_of_the_last_version_orders_iterations(client, service, make_job, begin):
    job = make_job(simple)
    (first,) = PipelineRun(job, begin(job)).start().outputs
    frozen = begin(job).models["reference"].token
    for attempt, token in ((0, client.compute(first)), (1, first)):
        iteration = begin(
            job, 1, version=1, attempt=attempt, tokens={"actor": token, "reference": frozen}
        )
        (second,) = PipelineRun(job, iteration).start().outputs
        assert client.compute(second).result().token.version == 2
    assert [call.iteration for call in service.calls].count(1) == 4
    assert service.calls[0].iteration == 0


def test_what_a_generator_asked_for_is_not_computed_again(client, service, make_job, begin):
    def pipeline(it):
        samples = it.actor.generate(it.prompts, n=2)
        count = yield dask.delayed(len)(samples)
        return it.actor.train(samples, [float(count)] * count)

    job = make_job(pipeline)
    run = PipelineRun(job, begin(job))
    step = run.start()
    held = []
    while isinstance(step, Compute):
        held += client.compute([step.node, *others(step.node)])
        step = run.send(held[0].result())
    trained = client.compute(step.outputs[0]).result()
    assert dict(trained.metrics)["advantage"] == 16.0
    assert [call.op for call in service.calls] == OPS


def others(node):
    """Nodes before a node, which a driver holds until the iteration has ended."""
    return [type(node)(key, node.dask) for key in node.dask if key != node.key]


@pytest.mark.usefixtures("client")
def test_a_plain_cluster_says_that_there_is_no_service(make_job, begin):
    job = make_job(simple)
    (node,) = PipelineRun(job, begin(job)).start().outputs
    with pytest.raises(NoServiceError, match=r"plexrl\.attach\(client\)"):
        dask.compute(node)
