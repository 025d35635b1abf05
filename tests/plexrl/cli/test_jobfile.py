import json
from pathlib import Path

import pytest
import yaml
from jsonschema import Draft202012Validator

from plexrl.cli.jobfile import SCHEMA, read_job_file
from plexrl.errors import InputError, JobFileError

EXAMPLES = sorted((Path(__file__).parents[3] / "examples").glob("*.yaml"))
GOOD = {"model": "tiny", "task": "ascending", "iterations": 3}


def written(tmp_path, data):
    path = tmp_path / "job.yaml"
    path.write_text(data if isinstance(data, str) else yaml.safe_dump(data), encoding="utf-8")
    return path


def test_schema_is_a_schema():
    Draft202012Validator.check_schema(json.loads(SCHEMA.read_text(encoding="utf-8")))


def test_every_schema_entry_says_what_to_give():
    def entries(schema):
        for part in schema.get("properties", {}).values():
            yield part
            yield from entries(part)

    schema = json.loads(SCHEMA.read_text(encoding="utf-8"))
    assert all(entry["description"] for entry in entries(schema))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_examples_follow_the_schema(path):
    assert read_job_file(path).data["iterations"] > 0


def test_there_are_examples():
    assert len(EXAMPLES) >= 6


def test_name_is_the_files_by_default(tmp_path):
    assert read_job_file(written(tmp_path, GOOD)).name == "job"
    assert read_job_file(written(tmp_path, {**GOOD, "name": "x"})).name == "x"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"seed": 10**30}, ["seed is 1000000000000000000000000000000", "63 bits"]),
        ({"num_prompts": 10**9}, ["num_prompts is 1000000000", "from 1 to 1000000"]),
        ({"iteratons": 3}, ["iteratons is no known key", "did you mean 'iterations'"]),
        ({"iterations": "ten"}, ['iterations is "ten"', "a whole number of at least 1"]),
        ({"iterations": 0}, ["iterations is 0", "at least 1"]),
        ({"iterations": None}, ["iterations is null", "at least 1"]),
        ({"iterations": True}, ["iterations is true", "whole number"]),
        ({"num_samples": 4.0}, ["num_samples is 4.0", "whole number of at least 1"]),
        ({"algorithm": {"lrr": 1}}, ["algorithm.lrr is no known key", "did you mean 'lr'"]),
        ({"algorithm": {"beta": 0.1}}, ["algorithm.beta is no known key", "is 'kl_coef' here"]),
        ({"algorithm": {"lr": -1}}, ["algorithm.lr is -1", "above 0"]),
        ({"algorithm": {"betas": [0.9]}}, ["algorithm.betas is [0.9]", "two numbers"]),
        ({"algorithm": {"lr_schedule": "step"}}, ["lr_schedule", "linear, cosine or constant"]),
        ({"name": "a/b"}, ['name is "a/b"', "letters, digits"]),
        ({"task": {"options": {}}}, ["task.name is missing", "registered task"]),
        ({"slowdown_limit": 0.5}, ["slowdown_limit is 0.5", "at least 1"]),
        ({"commit": {"every": 1}}, ["commit.every is no known key", "every_iterations"]),
        ({"hints_s": {"actor.rollout.0": -1}}, ["hints_s.actor.rollout.0 is -1", "at least 0"]),
        ({"pipeline": "own_loss.py"}, ['pipeline is "own_loss.py"', "file.py:function"]),
        ({"pipeline": "a.py:f", "algorithm": {}}, ["algorithm is {}", "leave it out"]),
        ({"pipeline": "a.py:f", "prompts": "p.jsonl"}, ["prompts", "leave out the task"]),
        ({"prompts": "p.jsonl"}, ["prompts", "pipeline of your own"]),
    ],
)
def test_a_wrong_value_is_one_clear_error(tmp_path, change, words):
    path = written(tmp_path, {**GOOD, **change})
    with pytest.raises(JobFileError) as caught:
        read_job_file(path)
    message = str(caught.value)
    assert message.startswith(str(path))
    assert "\n" not in message
    for word in words:
        assert word in message


@pytest.mark.parametrize("missing", ["model", "iterations", "task"])
def test_a_missing_key_is_named(tmp_path, missing):
    path = written(tmp_path, {key: GOOD[key] for key in GOOD if key != missing})
    with pytest.raises(JobFileError, match=f"{missing} is missing; "):
        read_job_file(path)


@pytest.mark.parametrize("text", ["", "- a\n- b\n", "just words\n"])
def test_a_file_that_is_no_mapping(tmp_path, text):
    with pytest.raises(JobFileError, match="give a mapping"):
        read_job_file(written(tmp_path, text))


def test_broken_yaml_is_placed(tmp_path):
    with pytest.raises(JobFileError, match="neither YAML nor JSON at line 3, column 1"):
        read_job_file(written(tmp_path, "a: 1\nb: [1\n: 2"))


def test_bytes_that_are_no_text(tmp_path):
    path = tmp_path / "job.yaml"
    path.write_bytes(b"\xff\xfe\x00name")
    with pytest.raises(JobFileError, match=r"job\.yaml is not UTF-8 text"):
        read_job_file(path)


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(InputError, match=r"nope.yaml cannot be read \(No such file"):
        read_job_file(tmp_path / "nope.yaml")


def test_an_empty_file_is_called_empty(tmp_path):
    with pytest.raises(JobFileError, match="the file is empty; give a mapping"):
        read_job_file(written(tmp_path, ""))


def test_a_key_that_stands_twice_is_an_error(tmp_path):
    path = written(tmp_path, "model: tiny\niterations: 3\niterations: 4\ntask: copy\n")
    with pytest.raises(JobFileError, match="line 3, column 1: key 'iterations' stands there twice"):
        read_job_file(path)
