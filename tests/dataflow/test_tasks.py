import json

import cloudpickle
import pytest

from dataflow import tasks
from dataflow.checking import check_job
from dataflow.datasets import PromptSource
from dataflow.errors import DataError, PipelineError, UnknownNameError
from dataflow.inspect import graph_of
from dataflow.pipelines import SETTINGS, GrpoSettings, grpo
from dataflow.rewards import score
from dataflow.samples import Sample

WITHOUT_EXTRAS = [name for name in tasks.names() if name not in {"data", "reasoning_gym"}]


def options_of(node):
    return node.dask[node.key].args[0].options


@pytest.mark.parametrize("name", WITHOUT_EXTRAS)
def test_every_task_makes_a_job_that_can_be_sent_and_checked(name):
    job = cloudpickle.loads(cloudpickle.dumps(grpo(model="folder", task=name, iterations=3)))
    ops = check_job(job)
    assert ops[0].op == "actor.rollout.0"
    assert ops[-1].op == "actor.train.0"
    assert all(op.hint_s for op in ops)
    assert job.name == name
    assert name == "judged" or tasks.task(name).description == job.description


@pytest.mark.parametrize("name", WITHOUT_EXTRAS)
def test_every_task_can_judge_answers_to_its_own_prompts(name, monkeypatch):
    monkeypatch.setattr("time.sleep", lambda _: None)
    chosen = tasks.task(name, **({"median_s": 0.0} if name == "judged" else {}))
    source = chosen.prompts(0)
    assert isinstance(source, PromptSource)
    samples = [Sample(prompt, 0, (), text="0") for prompt in source.batch(0, 4)]
    assert len(score(chosen.reward(0), samples).values) == 4


def test_the_late_judge_says_its_distribution():
    assert "median 0.25 s" in tasks.task("judged", median_s=0.25).description


def test_the_calculator_has_a_turn_for_the_tool(begin):
    job = grpo(model="folder", task="calculator", iterations=2)
    it = begin(job)
    graph = graph_of(job.pipeline(it))
    names = [name.partition("-")[0] for name in graph]
    assert sorted(names) == ["reward", "rollout", "rollout", "tool", "train"]


def test_an_iteration_of_a_single_turn_task_has_three_nodes(begin):
    job = grpo(model="folder", task="ascending", iterations=2)
    assert len(graph_of(job.pipeline(begin(job)))) == 3


def test_the_step_size_falls_to_0_over_the_job(begin):
    job = grpo(model="folder", task="ascending", iterations=4, lr=1e-3)
    sizes = [options_of(job.pipeline(begin(job, index))).learning_rate for index in range(4)]
    assert sizes == pytest.approx([1e-3, 0.75e-3, 0.5e-3, 0.25e-3])
    constant = grpo(model="folder", task="copy", iterations=4, lr=1e-3, lr_schedule="constant")
    assert options_of(constant.pipeline(begin(constant, 3))).learning_rate == 1e-3


def test_settings_reach_the_nodes(begin):
    job = grpo(
        model="folder",
        task="ascending",
        iterations=2,
        num_prompts=3,
        num_samples=5,
        max_new_tokens=6,
        temperature=0.7,
        num_epochs=2,
        commit_every=3,
    )
    it = begin(job)
    options = options_of(it.actor.generate(it.prompts, n=2))
    trained = options_of(job.pipeline(begin(job)))
    assert len(it.prompts) == 3
    assert options.num_samples == 2
    assert (trained.temperature, trained.num_epochs) == (0.7, 2)
    assert job.commit.every_iterations == 3
    assert job.pipeline.settings.num_samples == 5
    assert job.pipeline.settings.max_new_tokens == 6


def test_settings_are_fields_of_the_pipeline():
    assert set(SETTINGS) <= set(GrpoSettings.__dataclass_fields__)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"task": "ascendign"}, r"'ascendign'; known are ascending, calculator, copy"),
        ({"task_options": {"width": 3}}, "has no option 'width'; its options are length"),
        ({"speed": 1e-3}, "no setting 'speed'; its settings are advantage"),
        ({"learning_rate": 1e-3}, "no setting 'learning_rate'; what TRL or verl calls so is 'lr'"),
        ({"advantage": "mean"}, "no advantage is called 'mean'"),
        ({"lr_schedule": "step"}, "no lr_schedule 'step'"),
        ({"task": "judged", "task_options": {"order": "up"}}, "no order is called 'up'"),
    ],
)
def test_an_unknown_name_lists_the_known_ones(changes, problem):
    with pytest.raises(UnknownNameError, match=problem):
        grpo(**{"model": "folder", "task": "ascending", "iterations": 2, **changes})


@pytest.mark.parametrize(
    ("changes", "problem"),
    [({"lr": -1}, "lr is -1"), ({"lr": "fast"}, "lr is 'fast'"), ({"num_epochs": 0}, "num_epochs")],
)
def test_a_setting_out_of_range_is_named(changes, problem):
    with pytest.raises(PipelineError, match=problem):
        grpo(model="folder", task="ascending", iterations=2, **changes)


def test_an_option_out_of_range_is_named():
    with pytest.raises(DataError, match="length 40"):
        grpo(model="folder", task="copy", iterations=2, task_options={"length": 40})


def test_a_task_of_ones_own_can_be_registered(monkeypatch):
    monkeypatch.setattr("dataflow.tasks._TASKS", {})

    def mine():
        raise NotImplementedError

    tasks.register("mine", mine)
    assert tasks.names() == ("mine",)
    with pytest.raises(UnknownNameError, match="'mine' is taken"):
        tasks.register("mine", lambda: None)


@pytest.fixture
def data(tmp_path):
    """A file of questions, and one of others."""
    for name, numbers in (("train", range(6)), ("held_out", range(50, 54))):
        rows = [{"q": f"{n}+1=", "gold": n + 1} for n in numbers]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return {"path": str(tmp_path / "train.jsonl"), "prompt": "q", "answer": "gold"}


def test_a_data_set_is_a_task_with_prompts_held_out(data, tmp_path):
    options = {**data, "held_out": str(tmp_path / "held_out.jsonl")}
    job = grpo(model="m", task="data", task_options=options, iterations=2, evaluation={})
    check_job(job)
    assert job.description == "train.jsonl, judged by exact"
    assert sorted(p.answer for p in job.prompts.batch(0, 6)) == list("123456")
    held_out = {p.text for p in job.evaluation.prompts.batch(0, 4)}
    assert held_out == {f"{n}+1=" for n in range(50, 54)}
    other = grpo(model="m", task="data", task_options=options, iterations=2, seed=1)
    assert other.prompts.batch(0, 6) != job.prompts.batch(0, 6)
    with pytest.raises(PipelineError, match="nothing of it is held out"):
        grpo(model="m", task="data", task_options=data, iterations=2, evaluation={})


def last_digit(sample):
    return float(sample.text[-1:])


def both(completions, gold, **_):
    return [float(text == str(right)) for text, right in zip(completions, gold, strict=True)]


@pytest.mark.parametrize(
    ("reward", "values"),
    [
        ("exact", (1.0, 0.0)),
        ({"exact": "="}, (1.0, 0.0)),
        pytest.param({"regex": "(?P<answer>[0-9]+)"}, (1.0, 0.0), marks=pytest.mark.slow),
        ({"json_schema": {"maximum": 5}}, (1.0, 0.5)),
        pytest.param(last_digit, (3.0, 7.0), marks=pytest.mark.slow),
        (both, (1.0, 0.0)),
    ],
)
def test_a_data_set_is_judged_as_its_user_says(data, reward, values):
    chosen = tasks.task("data", **data, reward=reward)
    prompt = next(p for p in chosen.prompts(0).batch(0, 6) if p.answer == "3")
    samples = [Sample(prompt, i, (), text=text) for i, text in enumerate(("3", "7"))]
    assert score(chosen.reward(0), samples).values == values


@pytest.mark.parametrize(
    ("change", "error", "problem"),
    [
        ({"reward": "mathz"}, UnknownNameError, "no reward is called 'mathz'"),
        ({"reward": {"regexp": "x"}}, UnknownNameError, "give one of exact, json_schema, regex"),
        ({"reward": {}}, UnknownNameError, "give one of exact, json_schema, regex"),
        ({"reward": {"regex": "("}}, DataError, "no regular expression"),
        ({"reward": {"exact": 3}}, DataError, "the mark before an answer is 3"),
        ({"reward": {"json_schema": True}}, DataError, "the JSON schema is True; give a mapping"),
        ({"reward": 3}, UnknownNameError, "reward 3 is int"),
        ({"path": ""}, DataError, "the path of a data set is ''"),
        ({"path": "nowhere.jsonl"}, DataError, r"nowhere\.jsonl: cannot be read"),
        ({"answer": "right"}, DataError, "no record has the field 'right'"),
        ({"held_out": "nowhere.jsonl"}, DataError, r"nowhere\.jsonl: cannot be read"),
        ({"chat_of": "nowhere"}, DataError, r"tokenizer_config\.json cannot be read"),
        ({"columns": "q"}, UnknownNameError, "'data' has no option 'columns'"),
    ],
)
def test_a_data_set_that_is_described_wrongly_is_refused(data, change, error, problem):
    with pytest.raises(error, match=problem):
        tasks.task("data", **{**data, **change})
