"""The README is short, and what it shows works."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from plexrl.cli.building import build_job
from plexrl.cli.jobfile import read_job_file
from plexrl.cli.main import app

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```", README, flags=re.MULTILINE | re.DOTALL)


def commands():
    lines = [line for block in blocks("sh") for line in block.splitlines()]
    lines += re.findall(r"^    (\S.*)$", README, flags=re.MULTILINE)
    return [shlex.split(line, comments=True) for line in lines]


def run(command, folder):
    return subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_readme_is_at_most_150_lines():
    assert len(README.splitlines()) <= 150


def test_files_it_names_exist():
    links = re.findall(r"\]\((?!https?:)([^)#]+)\)", README)
    paths = re.findall(r"(?:examples|plexrl|requirements)/[\w./-]+\.\w+", README)
    assert paths
    for name in (*links, *paths):
        assert (ROOT / name).exists(), name


def test_make_targets_it_names_exist():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    named = {words[1] for words in commands() if words[0] == "make"}
    named |= set(re.findall(r"`make ([a-z-]+)`", README))
    assert named
    assert named <= targets


def test_job_files_it_shows_build(tmp_path):
    for number, block in enumerate(blocks("yaml")):
        path = tmp_path / f"job{number}.yaml"
        path.write_text(block, encoding="utf-8")
        assert (
            build_job(read_job_file(path), lambda: "folder").name == yaml.safe_load(block)["name"]
        )


@pytest.mark.parametrize("command", [c for c in commands() if c[0] == "plexrl"], ids=" ".join)
def test_commands_it_shows_have_these_options(command):
    path = [word for word in command[1:3] if re.fullmatch("[a-z]+", word)]
    done = CliRunner().invoke(app, [*path, "--help"])
    assert done.exit_code == 0, done.output
    for option in (word for word in command if word.startswith("--")):
        assert option in re.sub(r"\x1b\[[0-9;]*m", "", done.stdout)


@pytest.mark.slow
@pytest.mark.parametrize("code", blocks("python"))
def test_python_blocks_run(code, tmp_path):
    (tmp_path / "block.py").write_text(code, encoding="utf-8")
    done = run([sys.executable, "block.py"], tmp_path)
    assert done.returncode == 0, done.stderr
    assert "reward" in done.stdout
