import pytest

from dataflow.calls import VersionToken
from dataflow.errors import DataError, PipelineError
from dataflow.inspect import graph_of
from dataflow.iteration import RESERVED_NAMES
from dataflow.samples import Prompt


def annotation(node):
    return graph_of(node).nodes[node.key]["annotation"]


def call_of(node):
    return node.dask[node.key].args[0]


def test_prompts_stand_at_the_data_cursor(make_job, begin):
    job = make_job(lambda _: None)
    it = begin(job, 1)
    assert [prompt.index for prompt in it.prompts] == [2, 3]
    assert it.cursor_after == 4


def test_a_handle_says_version_iteration_and_turn(make_job, begin):
    it = begin(make_job(lambda _: None, hints_s={"actor.rollout.1": 0.5}), 2, version=2)
    first = it.actor.generate(it.prompts, n=3)
    second = it.actor.generate(first)
    assert annotation(first) == {
        "job": "sorter",
        "model": "actor",
        "function": "rollout",
        "iteration": 2,
        "turn": 0,
        "version": 2,
        "attempt": 0,
        "op": "actor.rollout.0",
        "hint_s": None,
    }
    assert annotation(second)["op"] == "actor.rollout.1"
    assert annotation(second)["hint_s"] == 0.5


def test_a_frozen_model_stays_at_version_0(make_job, begin):
    it = begin(make_job(lambda _: None), 2, version=2)
    samples = it.actor.generate(it.prompts)
    assert annotation(it.reference.logprobs(samples))["version"] == 0


def test_after_train_the_handle_is_the_next_version_and_waits_for_it(make_job, begin):
    it = begin(make_job(lambda _: None), 1, version=1)
    samples = it.actor.generate(it.prompts)
    trained = it.actor.train(samples, [1.0] * 16)
    after = it.actor.generate(it.prompts)
    assert it.actor.version == 2
    assert annotation(after)["version"] == 2
    assert trained.key in graph_of(after).predecessors(after.key)


def test_rollouts_may_use_older_weights_than_training(make_job, begin):
    it = begin(
        make_job(lambda _: None),
        3,
        version=3,
        rollout_tokens={"actor": VersionToken("sorter", "actor", 2, "d")},
        rollout_versions={"actor": 2},
    )
    samples = it.actor.generate(it.prompts)
    trained = it.actor.train(samples, [1.0] * 16)
    assert annotation(samples)["version"] == 2
    assert annotation(trained)["version"] == 3
    assert annotation(it.actor.generate(it.prompts))["version"] == 4


def test_later_rollouts_wait_for_sync(make_job, begin):
    it = begin(make_job(lambda _: None))
    it.actor.train(it.actor.generate(it.prompts), [1.0] * 16)
    synced = it.actor.sync()
    after = it.actor.generate(it.prompts)
    assert annotation(synced)["version"] == annotation(after)["version"] == 1
    assert synced.key in graph_of(after).predecessors(after.key)


def test_only_train_moves_the_data_cursor_and_only_the_last_one_ends_the_job(make_job, begin):
    job = make_job(lambda _: None)
    for index, may_be_last in ((2, False), (3, True)):
        it = begin(job, index, version=index)
        samples = it.actor.generate(it.prompts)
        call = call_of(it.actor.train(samples, [1.0] * 16))
        assert (call.data_cursor, call.may_be_last) == (2 * index + 2, may_be_last)
        assert (call_of(samples).data_cursor, call_of(samples).may_be_last) == (0, False)


def test_a_second_rollout_of_the_same_prompts_draws_other_numbers(make_job, begin):
    it = begin(make_job(lambda _: None))
    seeds = [call_of(it.actor.generate(it.prompts)).seed for _ in range(2)]
    seeds.append(call_of(it.reference.generate(it.prompts)).seed)
    assert seeds[0] == 7
    assert len(set(seeds)) == 3
    again = begin(make_job(lambda _: None))
    assert [call_of(again.actor.generate(again.prompts)).seed for _ in range(2)] == seeds[:2]


def test_attempts_and_runs_have_keys_of_their_own(make_job, begin):
    job = make_job(lambda _: None)
    variants = ({}, {"attempt": 1}, {"run": "r2"})
    iterations = [begin(job, 0, **variant) for variant in variants]
    assert len({it.actor.generate(it.prompts).key for it in iterations}) == 3


def test_models_are_found_by_attribute_and_by_name(make_job, begin):
    it = begin(make_job(lambda _: None))
    assert it.actor is it.models["actor"]
    assert list(it.models) == ["actor", "reference"]
    assert it.fraction_done == 0
    assert not it.is_last


@pytest.mark.parametrize("find", [lambda it: it.critic, lambda it: it.models["critic"]])
def test_an_unknown_model_is_named_with_the_known_ones(make_job, begin, find):
    with pytest.raises(PipelineError, match=r"no model 'critic'.*'actor', 'reference'"):
        find(begin(make_job(lambda _: None)))


def test_every_attribute_of_an_iteration_is_a_reserved_name(make_job, begin):
    it = begin(make_job(lambda _: None))
    assert {name for name in vars(it) if not name.startswith("_")} <= RESERVED_NAMES
    assert {"key", "trained", "is_last"} <= RESERVED_NAMES


def test_a_frozen_model_cannot_be_trained(make_job, begin):
    it = begin(make_job(lambda _: None))
    with pytest.raises(PipelineError, match="'reference', which is frozen"):
        it.reference.train(it.actor.generate(it.prompts), [1.0] * 16)


def test_one_model_is_trained_once_per_iteration(make_job, begin):
    it = begin(make_job(lambda _: None))
    samples = it.actor.generate(it.prompts)
    it.actor.train(samples, [1.0] * 16)
    with pytest.raises(PipelineError, match="trains 'actor' twice"):
        it.actor.train(samples, [1.0] * 16)


def test_a_handle_of_a_finished_iteration_makes_no_nodes(make_job, begin):
    it = begin(make_job(lambda _: None), 2)
    it.close()
    with pytest.raises(PipelineError, match="belongs to iteration 2"):
        it.actor.generate(it.prompts)


@pytest.mark.parametrize(
    ("inputs", "settings", "problem"),
    [
        ((), {}, "length 0"),
        ("x=", {}, "got str"),
        ([1, 2], {}, "got list of length 2"),
        (None, {}, "got NoneType"),
        ((Prompt(0, "x="),), {"n": 0}, "n=0"),
        ((Prompt(0, "x="),), {"max_new_tokens": 0}, "max_new_tokens=0"),
        ((Prompt(0, "x="),), {"temperature": float("nan")}, "temperature=nan"),
        ((Prompt(0, "x="),), {"temperature": -1.0}, "temperature=-1.0"),
        ((Prompt(0, "x="),), {"stop": ">"}, "stop='>'"),
    ],
)
def test_generate_refuses_what_it_cannot_do(make_job, begin, inputs, settings, problem):
    with pytest.raises(PipelineError, match=problem):
        begin(make_job(lambda _: None)).actor.generate(inputs, **settings)


@pytest.mark.parametrize(
    "settings", [{"lr": -1.0}, {"lr": float("inf")}, {"loss": ""}, {"loss": 3}, {"num_epochs": 0}]
)
def test_train_refuses_settings_out_of_range(make_job, begin, settings):
    it = begin(make_job(lambda _: None))
    (name, value), *_ = settings.items()
    with pytest.raises(PipelineError, match=f"{name}={value!r}"):
        it.actor.train(it.actor.generate(it.prompts), [1.0] * 16, **settings)


def test_a_source_that_gives_too_few_prompts_is_named(make_job, begin):
    class Short:
        def batch(self, cursor, _count):
            return (Prompt(cursor, "x="),)

    with pytest.raises(DataError, match="gave 1 items at cursor 0, not 2"):
        begin(make_job(lambda _: None, prompts=Short()))


def test_prompts_that_cannot_be_told_apart_are_refused(make_job, begin):
    class Forgetful:
        def batch(self, cursor, count):
            return tuple(Prompt(0, f"x{cursor + i}=") for i in range(count))

    with pytest.raises(DataError, match="gave 2 prompts with the index 0 at cursor 0"):
        begin(make_job(lambda _: None, prompts=Forgetful()))


def test_a_source_that_raises_is_named(make_job, begin):
    class Gone:
        def batch(self, _cursor, _count):
            raise OSError("the disk is away")

    told = r"source .*Gone, asked for 2 prompts at cursor 0, raised OSError \(test_iteration.py, "
    with pytest.raises(DataError, match=told):
        begin(make_job(lambda _: None, prompts=Gone()))


def test_something_that_is_no_source_is_named(make_job, begin):
    with pytest.raises(DataError, match="prompts are list"):
        begin(make_job(lambda _: None, prompts=["x="]))
