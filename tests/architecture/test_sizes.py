"""Sizes that keep every file readable in one sitting."""

import ast
from statistics import median

import pytest

from tests.architecture.sources import (
    CODE_FOLDERS,
    PACKAGES,
    classes,
    code_lines,
    functions,
    python_files,
    short,
)

DRAWERS = {"utils", "util", "helpers", "helper", "common", "misc", "tools", "shared"}


def num_lines(path):
    return len(path.read_text(encoding="utf-8").splitlines())


def test_no_module_is_over_600_lines():
    long = {short(p): num_lines(p) for p in python_files(*CODE_FOLDERS, "tests", "examples")}
    assert {name: lines for name, lines in long.items() if lines > 600} == {}


@pytest.mark.parametrize("package", PACKAGES)
def test_median_module_is_under_200_lines(package):
    assert median(num_lines(path) for path in python_files(package)) < 200


def test_functions_are_under_40_lines():
    long = {
        f"{short(path)}:{node.lineno} {node.name}": code_lines(node)
        for path in python_files(*CODE_FOLDERS)
        for node in functions(path)
        if code_lines(node) >= 40
    }
    assert long == {}


def test_classes_have_under_25_methods():
    wide = {}
    for path in python_files(*CODE_FOLDERS):
        for node in classes(path):
            methods = [
                n for n in node.body if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)
            ]
            if len(methods) >= 25:
                wide[f"{short(path)}:{node.lineno} {node.name}"] = len(methods)
    assert wide == {}


def test_no_module_is_a_drawer():
    files = python_files(*CODE_FOLDERS, "tests")
    assert {short(p) for p in files if DRAWERS & {p.stem, p.parent.name}} == set()
