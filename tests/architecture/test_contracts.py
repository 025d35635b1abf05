"""The floors of the house, its error trees, its public names and its linters."""

import importlib
import pickle
import pkgutil
import subprocess
import sys

import pytest

from dataflow.errors import DataflowError
from plexrl.errors import PlexRLError
from solver.errors import SolverError
from tests.architecture.sources import PACKAGES, ROOT


def modules():
    for package in PACKAGES:
        root = importlib.import_module(package)
        yield root
        for info in pkgutil.walk_packages(root.__path__, prefix=f"{package}."):
            if not info.name.endswith("__main__"):
                yield importlib.import_module(info.name)


def family(root):
    yield root
    for child in root.__subclasses__():
        yield from family(child)


LINT_IMPORTS = """
import sys
from importlinter.cli import lint_imports
sys.exit(lint_imports(config_filename="pyproject.toml", no_cache=True))
"""


@pytest.mark.slow
def test_import_contracts_hold():
    # In a process of its own: import-linter disables the loggers of the process it runs in.
    done = subprocess.run(
        [sys.executable, "-c", LINT_IMPORTS], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("root", [SolverError, DataflowError, PlexRLError])
def test_errors_are_picklable_and_have_a_kind_of_their_own(root):
    kinds = [cls.kind for cls in family(root)]
    assert len(kinds) == len(set(kinds))
    for cls in family(root):
        copy = pickle.loads(pickle.dumps(cls("job 'a' has 3; give it 4")))
        assert type(copy) is cls
        assert str(copy) == "job 'a' has 3; give it 4"


@pytest.mark.slow
def test_every_error_class_stands_in_the_drawing_of_its_tree():
    list(modules())
    for root in (SolverError, DataflowError, PlexRLError):
        drawing = sys.modules[root.__module__].__doc__
        missing = {cls.__name__ for cls in family(root) if cls.__name__ not in drawing}
        assert missing == set()


@pytest.mark.slow
def test_public_names_resolve():
    for module in modules():
        for name in getattr(module, "__all__", ()):
            assert hasattr(module, name), f"{module.__name__}.__all__ names {name!r}"


@pytest.mark.slow
@pytest.mark.parametrize(
    "command", [["ruff", "check", "."], ["ruff", "format", "--check", "."], ["mypy"]], ids=" ".join
)
def test_linters_are_content(command, tmp_path):
    caches = {"ruff": ["--no-cache"], "mypy": ["--cache-dir", str(tmp_path)]}[command[0]]
    done = subprocess.run(
        [sys.executable, "-m", *command, *caches],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
