from pathlib import Path

import cloudpickle
import pytest
import yaml

from dataflow.errors import DataflowError
from plexrl.cli.building import build_job
from plexrl.cli.jobfile import read_job_file
from plexrl.errors import JobFileError

EXAMPLES = sorted((Path(__file__).parents[3] / "examples").glob("*.yaml"))
GOOD = {"model": "tiny", "task": "ascending", "iterations": 3}


def file_of(tmp_path, **change):
    path = tmp_path / "job.yaml"
    path.write_text(yaml.safe_dump({**GOOD, **change}), encoding="utf-8")
    return read_job_file(path)


def no_model():
    raise AssertionError("the base model was asked for")


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_examples_build_jobs(path):
    job = build_job(read_job_file(path), lambda: "folder")
    assert job.models["actor"].folder == "folder"
    assert job.iterations == 40
    assert job.description


def test_settings_reach_the_job(tmp_path):
    file = file_of(
        tmp_path,
        name="x",
        seed=5,
        num_prompts=4,
        num_samples=6,
        slowdown_limit=1.5,
        commit={"every_iterations": 3},
        algorithm={"lr": 1e-3, "betas": [0.8, 0.9]},
        description="mine",
    )
    job = build_job(file, lambda: "folder")
    assert (job.name, job.seed, job.num_prompts, job.slowdown_limit) == ("x", 5, 4, 1.5)
    assert job.commit.every_iterations == 3
    assert job.description == "mine"
    settings = job.pipeline.settings
    assert (settings.lr, settings.betas, settings.num_samples) == (1e-3, (0.8, 0.9), 6)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"task": "ascendng"}, ['task is "ascendng"', "did you mean 'ascending'"]),
        ({"task": {"name": "sort"}}, ["task.name", "sort"]),
        ({"task": {"name": "copy", "options": {"lenght": 3}}}, ["lenght", "length"]),
        ({"algorithm": {"advantage": "mean"}}, ["algorithm.advantage", "mean"]),
        ({"model": "no/such/folder"}, ['model is "no/such/folder"', "no/such/folder is there"]),
        ({"pipeline": "nope.py:f"}, ["nope.py:f", "cannot be imported"]),
        ({"pipeline": "no.such.module:f"}, ["no.such.module", "cannot be imported"]),
    ],
)
def test_a_name_nobody_knows_costs_no_warm_up(tmp_path, change, words):
    with pytest.raises(JobFileError) as caught:
        build_job(file_of(tmp_path, **change), no_model)
    for word in words:
        assert word in str(caught.value)


def test_a_model_folder_is_looked_for_beside_the_job_file(tmp_path):
    (tmp_path / "base").mkdir()
    job = build_job(file_of(tmp_path, model="base"), no_model)
    assert job.models["actor"].folder == str(tmp_path / "base")


def test_a_pipeline_file_travels_by_value(tmp_path):
    (tmp_path / "mine.py").write_text("STEP = 3\n\ndef pipeline(it):\n    return STEP\n")
    job = build_job(file_of(tmp_path, pipeline="mine.py:pipeline"), lambda: "folder")
    (tmp_path / "mine.py").unlink()
    assert b"mine.py" in cloudpickle.dumps(job.pipeline)
    assert cloudpickle.loads(cloudpickle.dumps(job.pipeline))(None) == 3


def test_a_missing_function_is_named(tmp_path):
    (tmp_path / "mine.py").write_text("def pipeline(it):\n    return None\n")
    with pytest.raises(JobFileError, match="did you mean 'pipeline'"):
        build_job(file_of(tmp_path, pipeline="mine.py:pipelin"), no_model)


def test_an_error_in_a_pipeline_file_is_told(tmp_path):
    (tmp_path / "mine.py").write_text("1 / 0\n")
    with pytest.raises(JobFileError, match="ZeroDivisionError"):
        build_job(file_of(tmp_path, pipeline="mine.py:f"), no_model)


def test_frozen_models_join_the_actor(tmp_path):
    (tmp_path / "mine.py").write_text("def pipeline(it):\n    return None\n")
    (tmp_path / "judge").mkdir()
    file = file_of(
        tmp_path, pipeline="mine.py:pipeline", frozen_models={"judge": "judge", "reference": "tiny"}
    )
    job = build_job(file, lambda: "folder")
    assert not job.models["judge"].is_trainable
    assert job.models["reference"].folder == "folder"


def test_prompts_come_from_a_file(tmp_path):
    (tmp_path / "mine.py").write_text("def pipeline(it):\n    return None\n")
    (tmp_path / "p.jsonl").write_text('{"prompt": "1+1=", "answer": "2"}\n')
    data = {"model": "tiny", "iterations": 3, "pipeline": "mine.py:pipeline", "prompts": "p.jsonl"}
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(data))
    job = build_job(read_job_file(tmp_path / "job.yaml"), lambda: "folder")
    assert job.prompts.batch(0, 1)[0].text == "1+1="


def test_errors_of_the_job_name_the_file(tmp_path):
    (tmp_path / "mine.py").write_text("def pipeline(it):\n    return None\n")
    data = {"model": "tiny", "iterations": 3, "pipeline": "mine.py:pipeline", "prompts": "p.jsonl"}
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(data))
    with pytest.raises(JobFileError, match=r"job\.yaml: the job") as caught:
        build_job(read_job_file(tmp_path / "job.yaml"), no_model)
    assert isinstance(caught.value.__cause__, DataflowError)


def test_a_pipeline_file_that_ends_the_interpreter_is_an_error(tmp_path):
    (tmp_path / "mine.py").write_text("raise SystemExit(3)\n")
    with pytest.raises(JobFileError, match="cannot be imported: SystemExit: 3"):
        build_job(file_of(tmp_path, pipeline="mine.py:f"), no_model)


def test_critic_and_reference_are_folders_of_the_job_file(tmp_path):
    (tmp_path / "judge").mkdir()
    algorithm = {"name": "ppo", "critic": "judge", "kl_coef": 0.1, "reference": "tiny"}
    job = build_job(file_of(tmp_path, algorithm=algorithm, keep_samples=5), lambda: "base")
    folders = {name: model.folder for name, model in job.models.items()}
    assert folders == {"actor": "base", "critic": str(tmp_path / "judge"), "reference": "base"}
    assert (job.models["critic"].head, job.models["reference"].is_trainable) == ("value", False)
    assert job.keep_samples == 5


@pytest.mark.parametrize(
    ("algorithm", "words"),
    [
        ({"name": "ppo", "critic": "absent"}, ["algorithm.critic", "absent", "no folder"]),
        ({"reference": "absent", "kl_coef": 0.1}, ["algorithm.reference", "absent"]),
        ({"reference": "tiny"}, ["reference", "nothing uses it", "kl_coef"]),
        ({"critic": "tiny"}, ["critic", "nothing uses it", "gae"]),
    ],
)
def test_a_side_model_that_is_missing_or_useless_is_refused_before_the_warm_up(
    tmp_path, algorithm, words
):
    with pytest.raises(JobFileError) as error:
        build_job(file_of(tmp_path, algorithm=algorithm), no_model)
    assert all(word in str(error.value) for word in words), error.value


def test_evaluation_and_trackers_reach_the_job(tmp_path):
    (tmp_path / "held.jsonl").write_text('{"prompt": "x1=", "answer": "1"}\n', encoding="utf-8")
    file = file_of(
        tmp_path,
        evaluation={"every_iterations": 5, "prompts": "held.jsonl", "patience": 2, "target": 0.9},
        trackers=["wandb", {"name": "tensorboard", "options": {"folder": "events"}}],
    )
    job = build_job(file, lambda: "folder")
    found = job.evaluation
    assert (found.every_iterations, found.patience, found.target) == (5, 2, 0.9)
    assert found.prompts.batch(0, 1)[0].text == "x1="
    assert [tracker.name for tracker in job.trackers] == ["wandb", "tensorboard"]
    assert job.trackers[1].options == {"folder": str(tmp_path / "events")}


def test_an_own_pipeline_is_evaluated_on_its_task(tmp_path):
    (tmp_path / "own.py").write_text("def pipeline(it):\n    return None\n", encoding="utf-8")
    change = {"pipeline": "own.py:pipeline", "evaluation": {"num_prompts": 3}}
    job = build_job(file_of(tmp_path, **change), lambda: "folder")
    assert job.evaluation.num_prompts == 3
    path = tmp_path / "without.yaml"
    path.write_text(yaml.safe_dump({"model": "tiny", "iterations": 1, **change}))
    with pytest.raises(JobFileError, match=r"evaluation is .* name a task too"):
        read_job_file(path)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"trackers": ["wandbb"]}, ["trackers", "wandbb", "did you mean 'wandb'"]),
        ({"trackers": [{"name": "wandb", "options": {"projekt": 1}}]}, ["projekt", "project"]),
        ({"evaluation": {"prompts": "absent.jsonl"}}, ["absent.jsonl"]),
    ],
)
def test_a_wrong_tracker_or_evaluation_is_refused(tmp_path, change, words):
    with pytest.raises(JobFileError) as error:
        build_job(file_of(tmp_path, **change), no_model)
    assert all(word in str(error.value) for word in words), error.value


def data_file(tmp_path, **options):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a.jsonl").write_text('{"prompt": "1+1=", "answer": "2"}')
    (tmp_path / "mine.py").write_text("STEP = 1\n\ndef judge(sample):\n    return STEP\n")
    task = {"name": "data", "options": {"path": "data/a.jsonl", **options}}
    return file_of(tmp_path, task=task)


def test_a_data_set_and_its_reward_are_looked_for_beside_the_job_file(tmp_path):
    job = build_job(data_file(tmp_path, reward="mine.py:judge"), lambda: "folder")
    assert job.prompts.batch(0, 1)[0].answer == "2"
    assert job.description == "a.jsonl, judged by judge"
    # A function of one sample runs in a process of its own, and travels by value.
    sent = cloudpickle.loads(cloudpickle.dumps(job.pipeline.settings.reward))
    assert sent.verifier(None) == 1


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"reward": "mine.py:juge"}, ["task.options.reward", "did you mean 'judge'"]),
        ({"reward": "yours.py:judge"}, ["task.options.reward", "cannot be imported"]),
        ({"reward": "exakt"}, ["no reward is called 'exakt'"]),
        ({"path": "b.jsonl"}, ["b.jsonl", "cannot be read"]),
        ({"path": 3}, ["data set", "cannot be read"]),
    ],
)
def test_a_data_set_that_is_not_there_costs_no_warm_up(tmp_path, options, words):
    with pytest.raises(JobFileError) as caught:
        build_job(data_file(tmp_path, **options), no_model)
    assert all(word in str(caught.value) for word in words)
