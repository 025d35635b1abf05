import os
import re
import subprocess
import sys
from importlib.machinery import PathFinder

import pytest

from plexrl import shadowing


def run_check(folder):
    code = "from plexrl import shadowing; shadowing.check()"
    env = {**os.environ, "PYTHONPATH": str(folder)}
    return subprocess.run(
        [sys.executable, "-c", code],
        env=env,
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )


def test_our_own_packages_pass():
    shadowing.check()


@pytest.mark.slow
def test_a_foreign_module_is_named(tmp_path):
    foreign = tmp_path / "solver.py"
    foreign.write_text("raise SystemExit('the foreign module ran')\n")
    done = run_check(tmp_path)
    assert done.returncode == 1
    assert "ImportError" in done.stderr
    assert str(foreign) in done.stderr
    assert "the foreign module ran" not in done.stderr


def test_a_foreign_folder_without_init_is_named(tmp_path, monkeypatch):
    home, folder = tmp_path / "home", tmp_path / "work" / "dataflow"
    (home / "solver").mkdir(parents=True)
    (home / "solver" / "__init__.py").touch()
    folder.mkdir(parents=True)
    for name in ("solver", "dataflow"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    # Only these folders are left to be found, whatever way our own packages are installed.
    monkeypatch.setattr(sys, "path", [str(folder.parent), str(home)])
    monkeypatch.setattr(sys, "meta_path", [PathFinder])
    with pytest.raises(ImportError, match=re.escape(str(folder))):
        shadowing.check(home=home)


def test_a_missing_package_is_named(tmp_path):
    with pytest.raises(ImportError, match="'solver' at"):
        shadowing.check(home=tmp_path)


def test_a_module_made_at_run_time_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "dataflow", type(sys)("dataflow"))
    with pytest.raises(ImportError, match="made at run time"):
        shadowing.check()
