"""When evaluations are due, what their graph is, and when scores end a job."""

from dataclasses import replace

import pytest

from dataflow import tasks
from dataflow.annotations import ANNOTATION
from dataflow.calls import VersionToken
from dataflow.checking import check_job
from dataflow.datasets import LetterPrompts, prompts_of
from dataflow.errors import PipelineError, UnknownNameError
from dataflow.evaluating import at_hand, evaluation_nodes
from dataflow.evaluation import Evaluation
from dataflow.pipelines import grpo


def evaluation(**fields):
    return Evaluation(**{"prompts": LetterPrompts(seed=9), "reward": "copy", **fields})


def job(**settings):
    return grpo(**{"model": "folder", "task": "ascending", "iterations": 20, **settings})


def test_every_nth_iteration_and_the_last_one_are_evaluated():
    every_third = evaluation(every_iterations=3)
    assert [i for i in range(-1, 8) if every_third.is_due(i, 8)] == [2, 5, 7]


@pytest.mark.parametrize(
    ("fields", "scores", "words"),
    [
        ({}, [0.1, 0.1, 0.1, 0.1], ""),
        ({"patience": 2}, [], ""),
        ({"patience": 2}, [0.5, 0.4, 0.6, 0.6], ""),
        ({"patience": 2}, [0.5, 0.4, 0.5], "2 evaluations in a row gave no more than"),
        ({"patience": 2, "min_gain": 0.1}, [0.5, 0.55, 0.59], "best score 0.59"),
        ({"patience": 2, "min_gain": 0.1}, [0.5, 0.55, 0.66], ""),
        ({"target": 0.9}, [0.95, 0.89], ""),
        ({"target": 0.9}, [0.1, 0.9], "reaches the target 0.9"),
    ],
)
def test_scores_end_a_job_by_patience_or_target(fields, scores, words):
    reason = evaluation(**fields).why_stop(scores)
    assert (words in reason) if words else reason == ""


@pytest.mark.parametrize(
    ("fields", "last"),
    [({}, [7]), ({"target": 0.9}, [2, 5, 7]), ({"patience": 2}, [2, 5, 7])],
)
def test_a_version_that_may_be_the_last_one_is_known_before_it_is_trained(fields, last):
    spec = job(iterations=8, evaluation={"every_iterations": 3, **fields})
    assert [index for index in range(8) if spec.may_end_after(index)] == last


def nodes_of(spec, index=4, version=5):
    tokens = {"actor": VersionToken(spec.name, "actor", version, "d")}
    return evaluation_nodes(
        spec, spec.evaluation, index, tokens=tokens, versions={"actor": version}
    )


def test_the_prompts_of_an_evaluation_are_drawn_once():
    class Once:
        num_asked = 0

        def batch(self, cursor, count):
            self.num_asked += 1
            return LetterPrompts(seed=9).batch(cursor, count)

    source = Once()
    spec = job(evaluation=evaluation(prompts=source, num_prompts=3))
    drawn = replace(spec, evaluation=at_hand(spec, spec.evaluation))
    for index in (4, 9):
        assert nodes_of(drawn, index)[0].key != nodes_of(spec, index + 1)[0].key
    assert drawn.evaluation.prompts.batch(0, 3) == LetterPrompts(seed=9).batch(0, 3)
    assert source.num_asked == 3


def test_an_evaluation_is_an_llm_function_of_its_own():
    spec = job(evaluation={"num_prompts": 3, "num_samples": 2})
    samples, rewards = nodes_of(spec)
    annotation = samples.dask.layers[samples.key].annotations[ANNOTATION]
    assert (annotation["op"], annotation["version"]) == ("actor.evaluate.0", 5)
    assert samples.key.startswith("evaluate-")
    assert rewards.key.startswith("evaluation_reward-")
    assert samples.key in rewards.dask


def test_it_asks_the_same_held_out_prompts_every_time():
    spec = job(evaluation={})
    asked = [spec.evaluation.prompts.batch(0, 64) for _ in range(2)]
    assert asked[0] == asked[1]
    trained = {prompt.text for prompt in spec.prompts.batch(0, 1000)}
    assert len(trained & {prompt.text for prompt in asked[0]}) < 8


def test_the_turns_of_a_task_with_tools_are_evaluated_too():
    spec = job(task="calculator", evaluation={"num_prompts": 2})
    samples, _ = nodes_of(spec)
    ops = {
        layer.annotations[ANNOTATION]["op"]
        for layer in samples.dask.layers.values()
        if layer.annotations
    }
    assert ops == {"actor.evaluate.0", "actor.evaluate.1"}


def test_a_fixed_data_set_holds_nothing_out():
    records = prompts_of([{"prompt": "a"}, {"prompt": "b"}])
    task = replace(tasks.task("copy"), prompts=lambda _seed: records)
    with pytest.raises(PipelineError, match="nothing of it is held out; give the evaluation prom"):
        job(task=task, evaluation={})
    assert job(task=task, evaluation={"prompts": records}).evaluation.prompts is records


def test_an_unknown_option_is_named():
    with pytest.raises(UnknownNameError, match=r"no option 'patence'; its options are .*patience"):
        job(evaluation={"patence": 3})


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"model": "critic"}, "evaluation.model is 'critic'"),
        ({"every_iterations": 0}, "evaluation.every_iterations is 0"),
        ({"patience": 0}, "evaluation.patience is 0"),
        ({"target": float("nan")}, "evaluation.target is nan"),
        ({"prompts": None, "num_prompts": 4}, "nothing to generate|generate got|prompts"),
        ({"temperature": -1.0}, "temperature"),
    ],
)
def test_a_wrong_evaluation_is_refused_before_anything_starts(fields, words):
    with pytest.raises(PipelineError, match=words):
        check_job(replace(job(), evaluation=evaluation(**fields)))
