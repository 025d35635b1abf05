import dask
import pytest

from dataflow import scoring
from dataflow.errors import CycleError, PipelineError
from dataflow.stepping import Compute, Done, PipelineRun


def simple(it):
    samples = it.actor.generate(it.prompts, n=2)
    return it.actor.train(samples, scoring.node("ascending", "grpo_batch", samples))


def until_enough(it):
    """Rolls out until a value that was computed on the way says that it is enough."""
    total = 0
    while total < 9:
        samples = it.actor.generate(it.prompts, n=2)
        total += yield dask.delayed(len)(samples)
    return {"train": it.actor.train(samples, [float(total)] * 4)}


def test_a_plain_pipeline_is_done_at_once(make_job, begin, service):
    job = make_job(simple)
    step = PipelineRun(job, begin(job)).start()
    assert isinstance(step, Done)
    (trained,) = dask.compute(*step.outputs, scheduler="synchronous")
    assert trained.token.version == 1
    assert [call.op for call in service.calls] == ["actor.rollout.0", "actor.train.0"]


@pytest.mark.parametrize("form", [lambda n: n, lambda n: (n,), lambda n: [n], lambda n: {"a": n}])
def test_terminal_nodes_come_in_any_form(make_job, begin, drive, form):
    job = make_job(lambda it: form(simple(it)))
    assert len(drive(job, begin(job)).outputs) == 1


def test_the_number_of_turns_may_depend_on_values(make_job, begin, service):
    job = make_job(until_enough)
    run = PipelineRun(job, begin(job))
    step, num_asked = run.start(), 0
    while isinstance(step, Compute):
        num_asked += 1
        step = run.send(step.node.compute(scheduler="synchronous"))
    assert num_asked == 3
    assert [str(node.key).partition("-")[0] for node in step.outputs] == ["train"]
    dask.compute(*step.outputs, scheduler="synchronous")
    assert service.calls[-1].op == "actor.train.0"


def test_values_go_back_to_the_pipeline(make_job, begin):
    seen = []

    def pipeline(it):
        seen.append((yield it.actor.generate(it.prompts)))
        return simple(it)

    job = make_job(pipeline)
    run = PipelineRun(job, begin(job))
    run.start()
    run.send("value")
    assert seen == ["value"]


def for_ever(it):
    while True:
        yield it.actor.generate(it.prompts)


def test_a_pipeline_that_asks_for_ever_and_never_trains_is_ended(make_job, begin):
    job = make_job(for_ever, max_steps=3)
    run = PipelineRun(job, begin(job))
    run.start()
    run.send("1")
    run.send("2")
    with pytest.raises(PipelineError, match=r"asked for 3 values in iteration 0 and has not train"):
        run.send("3")


def never(it):
    samples = it.actor.generate(it.prompts)
    it.actor.train(samples, [1.0] * 16)
    return samples


def cyclic(it):
    samples = it.actor.generate(it.prompts)
    first = dask.delayed(list)(samples, dask_key_name="first")
    second = dask.delayed(list)(first, dask_key_name="second")
    return it.actor.train(samples, dask.delayed(list)(second, dask_key_name="first"))


@pytest.mark.parametrize(
    ("pipeline", "problem"),
    [
        (lambda it: it.actor.generate(it.prompts), "trains nothing"),
        (lambda _: None, "returned NoneType"),
        (lambda _: (), "returned tuple"),
        (lambda it: (simple(it), 3), "returned int"),
        (never, "trains 'actor' but returns nothing that depends on it"),
        (lambda _: 1 / 0, "raised ZeroDivisionError while building iteration 0"),
        (lambda it: simple(it, 2), "raised TypeError"),
        (lambda it: it.critic.generate(it.prompts), "no model 'critic'"),
    ],
)
def test_a_wrong_pipeline_is_refused_with_the_name_of_the_job(make_job, begin, pipeline, problem):
    job = make_job(pipeline)
    with pytest.raises(PipelineError, match=f"job 'sorter'.*{problem}|{problem}.*'sorter'"):
        PipelineRun(job, begin(job)).start()


def test_a_cycle_is_refused_with_its_nodes(make_job, begin):
    job = make_job(cyclic)
    with pytest.raises(CycleError, match=r"first → second → first|second → first → second"):
        PipelineRun(job, begin(job)).start()


def test_a_generator_that_yields_no_node_is_refused(make_job, begin):
    def pipeline(_it):
        yield 3

    job = make_job(pipeline)
    with pytest.raises(PipelineError, match="yielded int"):
        PipelineRun(job, begin(job)).start()


def test_a_generator_that_fails_on_a_value_is_named(make_job, begin):
    def pipeline(it):
        value = yield it.actor.generate(it.prompts)
        return value.missing

    job = make_job(pipeline)
    run = PipelineRun(job, begin(job))
    run.start()
    with pytest.raises(PipelineError, match=r"pipeline of job 'sorter' raised AttributeError"):
        run.send(3)


def test_a_pipeline_that_waits_for_nothing_takes_no_value(make_job, begin):
    job = make_job(simple)
    run = PipelineRun(job, begin(job))
    run.start()
    with pytest.raises(PipelineError, match="waits for no value"):
        run.send(1)
    with pytest.raises(PipelineError, match="started twice"):
        run.start()


def test_giving_up_ends_a_generator_where_it_stands(make_job, begin):
    ended = []

    def pipeline(it):
        try:
            yield it.actor.generate(it.prompts)
        finally:
            ended.append(it.index)

    job = make_job(pipeline)
    run = PipelineRun(job, begin(job))
    run.start()
    run.close()
    assert ended == [0]


def test_a_handle_kept_from_an_earlier_iteration_is_refused(make_job, begin):
    kept = []

    def pipeline(it):
        kept.append(it.actor)
        samples = kept[0].generate(it.prompts)
        return kept[0].train(samples, [1.0] * 16)

    job = make_job(pipeline)
    PipelineRun(job, begin(job, 0)).start()
    with pytest.raises(PipelineError, match="belongs to iteration 0"):
        PipelineRun(job, begin(job, 1)).start()
