"""The folder of a store: its marker, its locks, and the paths of jobs, models and versions."""

from __future__ import annotations

import fcntl
import json
import os
import re
from functools import lru_cache
from pathlib import Path
from urllib.parse import quote, unquote

from plexrl.core.states import StateRef
from plexrl.errors import StoreAwayError, StoreError
from plexrl.state import files

FORMAT_VERSION = 3
_FORMAT = "plexrl-store"
MARKER = ".plexrl-store.json"
LOCK = ".lock"
QUARANTINE = ".quarantine-"
TRASH = ".trash-"
VERSION_NAME = re.compile(r"v(\d{8,})")
_MAX_NAME_BYTES = 200


@lru_cache(maxsize=1024)
def name_to_path(name: str) -> str:
    """A file name for a user's name: never a path, never hidden, never one of the store's own.

    Raises
    ------
    StoreError
        The name is empty or too long.
    """
    encoded = quote(name, safe="")
    if encoded.startswith("."):
        encoded = "%2E" + encoded[1:]
    if not encoded or len(encoded) > _MAX_NAME_BYTES:
        raise StoreError(
            f"name {name[:40]!r} takes {len(encoded)} bytes in the store; "
            f"give a name of 1 to {_MAX_NAME_BYTES} bytes"
        )
    return encoded


def marker() -> bytes:
    """Content of the document that says that a place is a store."""
    return json.dumps({"format": _FORMAT, "format_version": FORMAT_VERSION}).encode()


def check_format(content: bytes, root: Path | str) -> None:
    """Check the marker of a store.

    Raises
    ------
    StoreError
        It is of another format, or cannot be read.
    """
    try:
        facts = dict(json.loads(content))
        name, found = facts.get("format", _FORMAT), facts["format_version"]
    except (ValueError, KeyError, TypeError) as error:
        raise StoreError(
            f"{MARKER} of {root} cannot be read ({error}); if it is a store, write "
            f"{marker().decode()} into it"
        ) from error
    if name != _FORMAT:
        raise StoreError(f"{root} is a {name!r}, no store of PlexRL; give another folder")
    if found != FORMAT_VERSION:
        raise StoreError(
            f"{root} is a store of format {found!r}, this PlexRL writes {FORMAT_VERSION}; "
            "use the PlexRL that wrote it, or give another store"
        )


def _subfolders(path: Path) -> list[str]:
    with files.disk_errors("list", path):
        try:
            with os.scandir(path) as entries:
                return sorted(e.name for e in entries if e.is_dir() and not e.name.startswith("."))
        except (FileNotFoundError, NotADirectoryError):
            return []


class FileLock:
    """Exclusive or shared claim on a folder; ends with the process, however it ends."""

    def __init__(self, folder: Path, *, shared: bool):
        self._path = folder / LOCK
        with files.disk_errors("write to the store", folder):
            self._fd = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(self._fd, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = os.pread(self._fd, 32, 0).decode(errors="replace").strip()
            os.close(self._fd)
            raise StoreError(
                f"{folder} is claimed for writing by another process"
                f"{f' (pid {holder})' if holder else ''}; stop it, or give another store"
            ) from error
        if not shared:
            os.ftruncate(self._fd, 0)
            os.pwrite(self._fd, str(os.getpid()).encode(), 0)

    def release(self) -> None:
        """End the claim."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class StoreFolder:
    """Checks and claims a store's folder, and names what lies in it.

    Parameters
    ----------
    root
        The folder; created unless `read_only`.
    read_only
        Claim nothing and change nothing.
    shared
        Claim single jobs instead of the whole store, so that the services of several groups
        write into one store.
    durable
        Sync what is created.

    Raises
    ------
    StoreError
        The folder is foreign, of a newer format, claimed by another process, or the disk
        refuses.
    """

    def __init__(self, root: Path, *, read_only: bool, shared: bool, durable: bool):
        self.root = root
        self._prefix = os.path.join(root, "")  # noqa: PTH118 - what `Path` lacks: a slash at the end
        self.read_only = read_only
        self._shared = shared
        self._durable = durable
        self._claims: dict[str, FileLock] = {}
        self._swept: set[str] = set()
        self._lock: FileLock | None = None
        with files.disk_errors("open the store", root):
            self._check_marker()
            if not read_only:
                files.make_folder(root, durable=durable)
                self._lock = FileLock(root, shared=shared)
                self._write_marker()

    def _check_marker(self) -> None:
        path = self.root / MARKER
        if not path.exists():
            if self.read_only:
                raise StoreError(f"no store at {self.root}; give the folder of a store")
            is_foreign = self.root.exists() and any(
                not entry.name.startswith(".") for entry in self.root.iterdir()
            )
            # Another group may have made it a store since the first look.
            if is_foreign and not path.exists():
                raise StoreError(
                    f"{self.root} holds files that are not a store's; give an empty or new folder "
                    f"(a store that has lost its {MARKER} needs one with {marker().decode()})"
                )
            return
        check_format(path.read_bytes(), self.root)

    def _write_marker(self) -> None:
        if not (self.root / MARKER).exists():
            files.write_file_atomically(self.root / MARKER, marker(), durable=self._durable)

    def check_there(self) -> None:
        """Check that the store has not gone away: unmounted, moved, deleted.

        What is there then is no empty store, and nothing may be created in its place.

        Raises
        ------
        StoreAwayError
            Its marker is not there.
        """
        if not (self.root / MARKER).exists():
            raise StoreAwayError(
                f"the store {self.root} is not there any more; bring it back (mount it, or move "
                "it to its place)"
            )

    def claim(self, job: str) -> None:
        """Make sure that no other process writes this job, and clear what a crash left of it.

        Raises
        ------
        StoreError
            The store was opened read-only, or another process writes the job.
        """
        if self.read_only:
            raise StoreError(f"{self.root} was opened read-only; open it for writing")
        if job in self._swept:
            return
        folder = self.root / name_to_path(job)
        files.make_folder(folder, durable=self._durable)
        if self._shared:
            self._claims[job] = FileLock(folder, shared=False)
        for model in _subfolders(folder):
            for entry in list((folder / model).iterdir()):
                is_half = VERSION_NAME.fullmatch(entry.name) and not (entry / "zarr.json").exists()
                if is_half or entry.name.startswith(TRASH):
                    files.remove_tree(entry)
        self._swept.add(job)

    def unclaim(self, job: str) -> None:
        """Let another process write this job."""
        self._swept.discard(job)
        if job in self._claims:
            self._claims.pop(job).release()

    def release(self) -> None:
        """End all claims."""
        for job in list(self._claims):
            self.unclaim(job)
        if self._lock:
            self._lock.release()

    def model_folder(self, job: str, model: str) -> Path:
        """Folder of a model's versions."""
        return self.root.joinpath(name_to_path(job), name_to_path(model))

    def version_path(self, ref: StateRef) -> str:
        """Path of a version's folder."""
        job, model = name_to_path(ref.job), name_to_path(ref.model)
        return f"{self._prefix}{job}/{model}/v{ref.version:08d}"

    def version_folder(self, ref: StateRef) -> Path:
        """Folder of a version."""
        return Path(self.version_path(ref))

    def aside(self, ref: StateRef, prefix: str) -> Path:
        """A free path beside the version's folder, hidden from listings."""
        folder = self.version_folder(ref)
        number = 0
        while (path := folder.with_name(f"{prefix}{folder.name}-{number}")).exists():
            number += 1
        return path

    def jobs(self) -> tuple[str, ...]:
        """Jobs with at least one model."""
        names = [name for name in _subfolders(self.root) if _subfolders(self.root / name)]
        return tuple(sorted(unquote(name) for name in names))

    def models(self, job: str) -> tuple[str, ...]:
        """Models of a job."""
        return tuple(sorted(map(unquote, _subfolders(self.root / name_to_path(job)))))

    def versions(self, job: str, model: str) -> tuple[int, ...]:
        """Committed versions of a model, oldest first."""
        folder = self.model_folder(job, model)
        found = [match for name in _subfolders(folder) if (match := VERSION_NAME.fullmatch(name))]
        return tuple(sorted(int(m[1]) for m in found if (folder / m.string / "zarr.json").exists()))

    def is_quarantined(self, ref: StateRef) -> bool:
        """Whether the version was moved aside as damaged."""
        folder = self.version_folder(ref)
        return any(folder.parent.glob(f"{QUARANTINE}{folder.name}-*"))

    def quarantined(self, job: str, model: str) -> tuple[Path, ...]:
        """Folders of damaged versions of a model."""
        return tuple(sorted(self.model_folder(job, model).glob(f"{QUARANTINE}*")))
