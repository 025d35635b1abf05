"""Habits of the house that a machine can check."""

import ast
import re

from tests.architecture.sources import (
    CODE_FOLDERS,
    PACKAGES,
    classes,
    functions,
    python_files,
    short,
    text_files,
    tree,
)

MACHINE_PATH = re.compile(r"/(work|farm|root)/[A-Za-z.]|/home/(?!you/)[a-z]")


def is_public(name):
    return not name.startswith("_")


def test_every_module_and_package_says_why_it_exists():
    files = python_files(*CODE_FOLDERS)
    assert {short(p) for p in files if not ast.get_docstring(tree(p))} == set()


def test_every_folder_of_code_is_a_package():
    folders = {path.parent for path in python_files(*CODE_FOLDERS)}
    assert {short(folder) for folder in folders if not (folder / "__init__.py").exists()} == set()


def test_public_names_have_docstrings():
    bare = set()
    for path in python_files(*PACKAGES):
        for node in tree(path).body:
            named = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
            if named and is_public(node.name) and not ast.get_docstring(node):
                bare.add(f"{short(path)}:{node.lineno} {node.name}")
    assert bare == set()


def dataclass_arguments(node):
    """Keyword arguments of the class's @dataclass decorator, or None if it has none."""
    for decorator in node.decorator_list:
        call = decorator.func if isinstance(decorator, ast.Call) else decorator
        if ast.unparse(call) not in {"dataclass", "dataclasses.dataclass"}:
            continue
        if not isinstance(decorator, ast.Call):
            return {}
        return {k.arg: ast.unparse(k.value) for k in decorator.keywords}
    return None


def test_dataclasses_are_slotted_values_or_entities():
    # A value is frozen. A row of a table may change in place; it is an entity, so it compares by
    # identity (eq=False) or stays private to its module.
    loose = set()
    for path in python_files(*PACKAGES):
        for node in classes(path):
            found = dataclass_arguments(node)
            if found is None:
                continue
            is_value = found.get("frozen") == "True"
            is_entity = found.get("eq") == "False" or not is_public(node.name)
            if found.get("slots") != "True" or not (is_value or is_entity):
                loose.add(f"{short(path)}:{node.lineno} {node.name}")
    assert loose == set()


def is_blind(handler):
    names = {"Exception", "BaseException"}
    if handler.type is None:
        return True
    return any(isinstance(n, ast.Name) and n.id in names for n in ast.walk(handler.type))


def says_something(handler):
    """Whether a handler raises, calls something or reads the error it caught."""
    inside = [n for statement in handler.body for n in ast.walk(statement)]
    return any(
        isinstance(n, ast.Raise | ast.Call)
        or (isinstance(n, ast.Name) and handler.name is not None and n.id == handler.name)
        for n in inside
    )


def test_no_error_is_silenced():
    silent = set()
    for path in python_files(*CODE_FOLDERS):
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.ExceptHandler) and (
                node.type is None or (is_blind(node) and not says_something(node))
            ):
                silent.add(f"{short(path)}:{node.lineno}")
            if isinstance(node, ast.Call) and ast.unparse(node) in {
                "suppress(Exception)",
                "contextlib.suppress(Exception)",
                "suppress(BaseException)",
                "contextlib.suppress(BaseException)",
            }:
                silent.add(f"{short(path)}:{node.lineno}")
    assert silent == set()


# What brings OR-Tools in, loaded only once the child process has capped its address space.
LOADED_LATE = {"solver.cpsat.cyclic", "solver.cpsat.pack"}
OPTIONAL_HEAVY = {"torch", "transformers", "vllm", "bokeh", "safetensors", "tokenizers"}


def test_imports_inside_functions_are_optional_heavy_ones():
    hidden = set()
    for path in python_files(*PACKAGES):
        for function in functions(path):
            for node in ast.walk(function):
                if isinstance(node, ast.Import):
                    roots = {alias.name.split(".")[0] for alias in node.names}
                elif isinstance(node, ast.ImportFrom):
                    if node.module in LOADED_LATE:
                        continue
                    roots = {(node.module or "").split(".")[0]}
                else:
                    continue
                if not roots <= OPTIONAL_HEAVY:
                    hidden.add(f"{short(path)}:{node.lineno} {ast.unparse(node)}")
    assert hidden == set()


def test_no_file_names_a_path_of_one_machine():
    found = set()
    for path in text_files():
        text = path.read_text(encoding="utf-8")
        for number, line in enumerate(text.splitlines(), start=1):
            if MACHINE_PATH.search(line):
                found.add(f"{short(path)}:{number}")
    assert found == set()
