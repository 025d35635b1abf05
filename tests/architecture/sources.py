"""Finds and parses the project's own files, once per test session."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("solver", "dataflow", "plexrl")
CODE_FOLDERS = (*PACKAGES, "benchmarks")
TOP_FOLDERS = (*CODE_FOLDERS, "tests", "examples", "requirements", "docs", ".ci", ".github")
TEXT_SUFFIXES = {".py", ".md", ".toml", ".yaml", ".yml", ".json", ".txt", ".cfg", ".rst", ""}


def python_files(*folders: str) -> tuple[Path, ...]:
    return tuple(
        path
        for folder in folders
        for path in sorted((ROOT / folder).rglob("*.py"))
        if "__pycache__" not in path.parts
    )


def text_files() -> Iterator[Path]:
    """Every text file a checkout holds; environments, caches and outputs stand in none of these."""
    yield from (path for path in ROOT.iterdir() if path.is_file() and is_text(path))
    for folder in TOP_FOLDERS:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.is_file() and is_text(path) and "__pycache__" not in path.parts:
                yield path


def is_text(path: Path) -> bool:
    return path.suffix in TEXT_SUFFIXES and path.name not in {".coverage", ".git"}


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def short(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def functions(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def classes(path: Path) -> Iterator[ast.ClassDef]:
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.ClassDef):
            yield node


def code_lines(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Lines from `def` to the end, the docstring not counted."""
    assert node.end_lineno is not None
    lines = node.end_lineno - node.lineno + 1
    first = node.body[0]
    if ast.get_docstring(node, clean=False) is not None:
        assert first.end_lineno is not None
        lines -= first.end_lineno - first.lineno + 1
    return lines
