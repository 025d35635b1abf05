"""The command as a person starts it, as far as nothing has to run for it."""

import json
import shlex

import pytest
import typer
import yaml
from typer.testing import CliRunner

import plexrl
from plexrl.cli import base_model, main
from plexrl.cli.main import app
from plexrl.cli.teaching import PANELS
from plexrl.engines.tiny_model import random_base

GOOD = {"model": "base", "task": "ascending", "iterations": 3}


@pytest.fixture(autouse=True)
def nothing_starts(monkeypatch, tmp_path):
    def started(*_args, **_kwargs):
        raise AssertionError("something was started")

    monkeypatch.setattr(main, "LocalCluster", started)
    monkeypatch.setattr(base_model, "tiny_base", started)
    monkeypatch.chdir(tmp_path)


def job_file(folder, **change):
    path = folder / f"{change.get('name', 'job')}.yaml"
    path.write_text(yaml.safe_dump({**GOOD, **change}), encoding="utf-8")
    return str(path)


def invoke(*words):
    return CliRunner().invoke(main.app, [str(word) for word in words])


def test_version():
    assert invoke("version").output == f"{plexrl.__version__}\n"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"iteratons": 1}, "did you mean 'iterations'"),
        ({"task": "ascendng"}, "did you mean 'ascending'"),
        ({"model": "nowhere"}, "no folder"),
        ({"model": "empty"}, "config.json"),
    ],
)
def test_bad_input_is_one_line_with_status_two(tmp_path, change, words):
    (tmp_path / "empty").mkdir()
    done = invoke("run", job_file(tmp_path, **change))
    assert done.exit_code == 2
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1
    assert words in done.stderr
    assert not (tmp_path / "plexrl-output").exists()
    assert not (tmp_path / "plexrl-store").exists()


def test_two_jobs_of_one_name(tmp_path):
    (tmp_path / "more").mkdir()
    done = invoke(
        "run", job_file(tmp_path, name="x"), job_file(tmp_path / "more", name="x", model="../base")
    )
    assert done.exit_code == 2
    assert "a name of its own" in done.stderr


@pytest.mark.slow
def test_a_cycle_in_a_pipeline_is_bad_input(tmp_path):
    random_base(str(tmp_path / "base"), 0)
    (tmp_path / "mine.py").write_text(
        "def pipeline(it):\n    return it.actor.generate(it.prompts)\n"
    )
    done = invoke("run", job_file(tmp_path, pipeline="mine.py:pipeline"))
    assert done.exit_code == 2
    assert "train" in done.stderr


def test_json_errors_are_json(tmp_path):
    done = invoke("run", "--json", tmp_path / "nope.yaml")
    assert done.exit_code == 2
    assert json.loads(done.stdout)["error"]["kind"] == "job_file"


@pytest.mark.parametrize("words", [("resume",), ("store", "ls"), ("store", "check")])
def test_a_folder_that_is_no_store(tmp_path, words):
    done = invoke(*words, tmp_path / "nowhere")
    assert done.exit_code == 2
    assert "nowhere" in done.stderr


def test_an_unknown_option_is_bad_input():
    assert invoke("demo", "--iteration", "3").exit_code == 2
    assert invoke("demo", "--iterations", "0").exit_code == 2


def leaves(command, path=()):
    """Commands that do something, each with its words."""
    if not hasattr(command, "commands"):
        yield path, command
        return
    for name, child in command.commands.items():
        yield from leaves(child, (*path, name))


@pytest.mark.parametrize(
    ("words", "command"), leaves(typer.main.get_command(app)), ids=lambda value: str(value)[:30]
)
def test_every_command_speaks_json_and_explains_itself(words, command):
    options = {option for parameter in command.params for option in parameter.opts}
    assert "--json" in options, words
    assert command.help
    silent = [parameter.name for parameter in command.params if not getattr(parameter, "help", "")]
    assert silent == []


@pytest.mark.parametrize(
    ("words", "command"), leaves(typer.main.get_command(app)), ids=lambda value: str(value)[:30]
)
def test_every_command_shows_an_example_that_parses(words, command):
    assert command.epilog.startswith("Example: ")
    program, *typed = shlex.split(command.epilog.removeprefix("Example: "))
    assert (program, tuple(typed[: len(words)])) == ("plexrl", words)
    assert command.make_context(command.name, typed[len(words) :]).args == []


def test_every_command_stands_under_a_heading():
    found = typer.main.get_command(app).commands
    assert set().union(*PANELS.values()) == found.keys() - {"version"}
    assert all(found[name].rich_help_panel in PANELS for name in found.keys() - {"version"})


@pytest.mark.parametrize(
    ("shell", "environ"),
    [
        ("bash", {"COMP_WORDS": "plexrl undr", "COMP_CWORD": "1"}),
        ("zsh", {"_TYPER_COMPLETE_ARGS": "plexrl undr"}),
        (
            "fish",
            {"_TYPER_COMPLETE_ARGS": "plexrl undr", "_TYPER_COMPLETE_FISH_ACTION": "get-args"},
        ),
    ],
)
def test_the_shell_can_complete_commands(shell, environ):
    environ = {"_PLEXRL_COMPLETE": f"complete_{shell}", **environ}
    done = CliRunner().invoke(app, [], prog_name="plexrl", env=environ)
    assert "undrain" in done.output
    assert "status" not in done.output


def test_help_tells_the_exit_statuses():
    assert "130" in CliRunner().invoke(app, ["--help"]).output
