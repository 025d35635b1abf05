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

WITHOUT_EXTRAS = [name for name in tasks.names() if name != "reasoning_gym"]


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
        ({"learning_rate": 1e-3}, "no setting 'learning_rate'; its settings are advantage"),
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
