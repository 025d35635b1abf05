"""Writes the files a command was asked for, and says before it starts which it cannot."""

from __future__ import annotations

import os
from pathlib import Path

from plexrl.errors import InputError


def check_writable(path: Path) -> None:
    """Refuse a file that could not be written.

    Raises
    ------
    InputError
        It is a folder, its folder is not there, or one of them may not be written.
    """
    try:
        is_folder, is_there, has_folder = path.is_dir(), path.exists(), path.parent.is_dir()
    except (OSError, ValueError) as error:
        raise InputError(
            f"{str(path)[:200]!r} cannot be written ({error}); name another"
        ) from error
    if is_folder:
        raise InputError(f"{path} cannot be written (it is a folder); name a file")
    if not has_folder:
        raise InputError(
            f"{path} cannot be written (there is no folder {path.parent}); make it, or name another"
        )
    if not os.access(path if is_there else path.parent, os.W_OK):
        raise InputError(f"{path} cannot be written (you may not); name another")


def save(path: Path, text: str) -> None:
    """Write a file.

    Raises
    ------
    InputError
        It cannot be written.
    """
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InputError(f"{path} cannot be written ({error.strerror}); name another") from error
