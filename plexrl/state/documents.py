"""Small documents beside the states: each appears whole or not at all, in a folder or at a URL."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Protocol

from plexrl.state import files
from plexrl.state.buckets import Bucket
from plexrl.state.places import is_url


class Documents(Protocol):
    """Named documents; names may have folders. Every method raises `StoreError` if refused."""

    def put(self, name: str, content: bytes) -> None:
        """Write a document; one of that name is replaced."""
        ...

    def get(self, name: str) -> bytes | None:
        """Content of a document; None if there is none."""
        ...

    def delete(self, name: str) -> None:
        """Delete a document; one that is gone is fine."""
        ...

    def names(self, prefix: str = "") -> tuple[str, ...]:
        """Documents whose names begin so, in whole folders (``"a/"``), sorted."""
        ...


class FolderDocuments:
    """Documents as files of a folder, which the first of them creates."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def put(self, name: str, content: bytes) -> None:
        """Write a document; one of that name is replaced."""
        with files.disk_errors(f"write {name} to", self._folder):
            target = self._folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            draft = target.with_name(f".{target.name}.{os.getpid()}")
            files.write_file(draft, content, durable=False)
            files.replace(draft, target)

    def get(self, name: str) -> bytes | None:
        """Content of a document; None if there is none."""
        with files.disk_errors(f"read {name} from", self._folder):
            try:
                return (self._folder / name).read_bytes()
            except FileNotFoundError:
                return None

    def delete(self, name: str) -> None:
        """Delete a document; one that is gone is fine."""
        with files.disk_errors(f"delete {name} from", self._folder):
            (self._folder / name).unlink(missing_ok=True)

    def names(self, prefix: str = "") -> tuple[str, ...]:
        """Documents whose names begin so, in whole folders (``"a/"``), sorted."""
        with files.disk_errors("list", self._folder):
            files_below = (p for p in (self._folder / prefix).rglob("*") if p.is_file())
            found = (p for p in files_below if not p.name.startswith("."))
            return tuple(sorted(p.relative_to(self._folder).as_posix() for p in found))


class BucketDocuments:
    """Documents as objects below a URL."""

    def __init__(self, url: str) -> None:
        self._bucket = Bucket(url, {})

    def put(self, name: str, content: bytes) -> None:
        """Write a document; one of that name is replaced."""
        self._bucket.put(name, content)

    def get(self, name: str) -> bytes | None:
        """Content of a document; None if there is none."""
        try:
            return bytes(self._bucket.get(name))
        except FileNotFoundError:
            return None

    def delete(self, name: str) -> None:
        """Delete a document; one that is gone is fine."""
        self._bucket.delete([name])

    def names(self, prefix: str = "") -> tuple[str, ...]:
        """Documents whose names begin so, in whole folders (``"a/"``), sorted."""
        return tuple(self._bucket.keys(prefix))


def open_documents(where: str | Path) -> Documents:
    """The documents of a folder or at a URL; nothing is created yet.

    Raises
    ------
    StoreError
        It is a URL that cannot be opened.
    """
    return BucketDocuments(str(where)) if is_url(where) else FolderDocuments(Path(where))
