"""Every link of the documentation resolves, and every block of code is what it claims to be."""

import logging.config
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import typer
import yaml

from plexrl.cli.building import build_job
from plexrl.cli.jobfile import read_job_file
from plexrl.cli.main import app

ROOT = Path(__file__).parents[1]
PAGES = sorted((ROOT / "docs").rglob("*.md"))
MAKE_TARGETS = set(
    re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
)


def text(page):
    return page.read_text(encoding="utf-8")


def blocks(*languages):
    for page in PAGES:
        for language, block in re.findall(
            r"^```(\w+)\n(.*?)^```", text(page), re.MULTILINE | re.DOTALL
        ):
            if language in languages:
                yield pytest.param(block, id=f"{page.stem}:{block.strip().splitlines()[0][:40]}")


def commands():
    for param in blocks("bash", "sh"):
        for line in param.values[0].replace("\\\n", " ").splitlines():
            words = shlex.split(line, comments=True)
            if words:
                yield pytest.param(words, id=line.strip())


def anchors(page):
    """Anchors of a page's headings, as the site makes them."""
    titles = re.findall(r"^#+ (.+)$", text(page), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title).strip().lower().replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_relative_links_resolve(page):
    links = re.findall(r"\]\(\s*(?!https?:|mailto:)([^)\s]+)\s*\)", text(page))
    for link in links:
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        assert target.exists(), link
        if anchor and target.suffix == ".md":
            assert anchor in anchors(target), link


def test_files_it_names_exist():
    pattern = r"\b((?:examples|benchmarks)/[\w/-]+\.(?:py|yaml|json|ipynb))"
    named = {name for page in PAGES for name in re.findall(pattern, text(page))}
    assert {name for name in named if not (ROOT / name).exists()} == set()


@pytest.mark.parametrize("words", commands())
def test_commands_it_shows_parse(words):
    if words[0] == "make":
        assert set(words[1:]) <= MAKE_TARGETS
    elif words[0] == "plexrl":
        command, context = typer.main.get_command(app), None
        words = words[1:]
        while hasattr(command, "commands"):
            command = command.commands[words.pop(0)]
        context = command.make_context(command.name, list(words))
        assert context.args == []


@pytest.mark.parametrize("block", blocks("yaml"))
def test_yaml_is_a_job_a_configuration_or_plain(block, tmp_path):
    found = yaml.safe_load(block)
    if "task" in found and "model" in found:
        path = tmp_path / "job.yaml"
        job = {"name": "shown", "iterations": 1, **found}
        path.write_text(yaml.safe_dump(job), encoding="utf-8")
        assert build_job(read_job_file(path), lambda: "folder").name == job["name"]
    if "formatters" in found.get("logging", {}):
        settings = found["logging"]
        # Handlers are left out: they would stay in this process.
        logging.config.dictConfig({**settings, "handlers": {}, "loggers": {}})
        assert settings["disable_existing_loggers"] is False


@pytest.mark.parametrize("block", blocks("python"))
def test_python_is_valid(block):
    compile(block, "block", "exec")


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "block", [param for param in blocks("python") if "__main__" in param.values[0]]
)
def test_python_programs_run(block, tmp_path):
    (tmp_path / "block.py").write_text(block, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "block.py"],
        cwd=tmp_path,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()
