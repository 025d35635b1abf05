"""Every link of the documentation resolves, and every block of code is what it claims to be."""

import inspect
import logging.config
import os
import pkgutil
import re
import shlex
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import typer
import yaml

import plexrl
import solver
from dataflow.algorithms import SETTINGS
from dataflow.elsewhere import NAMES_ELSEWHERE
from dataflow.pipelines import LOOKS, PLACES
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


def typed(block):
    """Commands of a shell block, each as its words; a quote may go over several lines."""
    so_far = ""
    for line in block.replace("\\\n", " ").splitlines():
        so_far += f"{line}\n"
        try:
            words = shlex.split(so_far, comments=True)
        except ValueError:
            continue
        so_far = ""
        if words:
            yield words
    assert not so_far, f"a quote is never closed: {so_far}"


def commands():
    for param in blocks("bash", "sh"):
        for words in typed(param.values[0]):
            end = words.index(">") if ">" in words else None
            yield pytest.param(words[:end], id=" ".join(words)[:60])


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
        # What a job names lies beside it.
        path = shutil.copytree(ROOT / "examples", tmp_path / "examples") / "job.yaml"
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


def test_the_reference_names_every_public_name_and_nothing_else():
    for package in (plexrl, solver):
        page = text(ROOT / "docs" / "reference" / f"{package.__name__}.md")
        named = re.findall(rf"^::: {package.__name__}\.(\w+)$", page, re.MULTILINE)
        assert sorted(named) == sorted(n for n in package.__all__ if not n.startswith("_"))


@pytest.mark.parametrize(
    "page", sorted((ROOT / "docs/reference").glob("*.md")), ids=lambda p: p.stem
)
def test_what_the_reference_shows_exists_and_says_what_it_is(page):
    for name in re.findall(r"^::: (\S+)$", text(page), re.MULTILINE):
        assert pkgutil.resolve_name(name).__doc__, name


@pytest.mark.parametrize(("theirs", "ours"), NAMES_ELSEWHERE.items())
def test_a_name_of_trl_or_verl_stands_in_the_row_of_ours(theirs, ours):
    page = text(ROOT / "docs" / "from-trl-and-verl.md")
    rows = [line for line in page.splitlines() if re.search(rf"^\|[^|]*\b{ours}\b", line)]
    assert any(re.search(rf"\b{theirs}\b", row) for row in rows)


def test_every_page_stands_in_the_navigation_once():
    settings = yaml.safe_load(text(ROOT / "mkdocs.yml"))
    named = list(leaves(settings["nav"]))
    assert sorted(named) == sorted(page.relative_to(ROOT / "docs").as_posix() for page in PAGES)


def leaves(entry):
    if isinstance(entry, str):
        yield entry
    else:
        for child in entry.values() if isinstance(entry, dict) else entry:
            yield from leaves(child)


def test_the_picture_of_rooms_shows_the_rooms_there_are():
    picture = text(ROOT / "docs" / "rooms.svg")
    shown = set(re.findall(r"\w+", " ".join(re.findall(r">([^<]+)</text>", picture))))
    rooms = {path.parent.name for path in (ROOT / "plexrl").glob("*/__init__.py")}
    assert rooms <= shown


@pytest.mark.slow
@pytest.mark.skipif(
    not all(map(find_spec, ("mkdocs", "material", "mkdocstrings"))),
    reason="needs the extra docs (pip install -e '.[docs]')",
)
def test_the_site_builds_without_a_warning(tmp_path):
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "bound_class" in text(tmp_path / "reference" / "solver" / "index.html")


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


def settings_in(column):
    """Names of settings in a column of the table for people who come from TRL or verl."""
    rows = re.findall(r"^\| (.*) \|$", text(ROOT / "docs" / "from-trl-and-verl.md"), re.MULTILINE)
    quoted = [
        part for row in rows[2:] for part in re.findall(r"`([^`]+)`", row.split(" | ")[column])
    ]
    return {re.split(r"[=:/]", part)[0] for part in quoted if not part.startswith('"')}


def test_settings_said_to_be_ours_are():
    of_grpo = {*inspect.signature(plexrl.grpo).parameters, *SETTINGS, *LOOKS, *PLACES}
    elsewhere = {"run.samples", "commit.every_iterations", "plexrl resume"}
    assert settings_in(0) - of_grpo == elsewhere
    assert callable(plexrl.Run.samples)


@pytest.mark.slow
@pytest.mark.skipif(find_spec("trl") is None, reason="TRL is not installed (plexrl[peers])")
def test_settings_said_to_be_those_of_trl_are():
    from trl import GRPOConfig, RLOOConfig

    fields = {*GRPOConfig.__dataclass_fields__, *RLOOConfig.__dataclass_fields__}
    others = {
        "RLOOTrainer",
        "EarlyStoppingCallback",
        "get_soft_overlong_punishment",
        "token_truncate",
        "adam_beta1",
        "cispo",
    }
    assert settings_in(1) - fields <= others
    assert "adam_beta1" in fields
