"""Where a store lies: the path of a folder, or a URL."""

from __future__ import annotations

from pathlib import Path


def is_url(where: str | Path) -> bool:
    """Whether a store is named by a URL, and not by the path of a folder."""
    return "://" in str(where)


def below(where: str | Path, name: str) -> str:
    """The place called `name` below another one."""
    return f"{str(where).rstrip('/')}/{name}" if is_url(where) else str(Path(where) / name)


def absolute(where: str | Path) -> str:
    """The same place for a process that runs in another folder."""
    return str(where) if is_url(where) else str(Path(where).absolute())
