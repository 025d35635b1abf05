"""Chunk files of deleted versions, which the next version of their model is written over.

Most of what a write costs are new pages and blocks (measured: four fifths), and a job whose old
versions retire deletes as many as it makes.
"""

from __future__ import annotations

from pathlib import Path
from threading import Lock

from plexrl.core.states import StateRef
from plexrl.state import files
from plexrl.state.geometry import ArraySpan, zarr_documents

_ARRAY_DOCUMENT = "zarr.json"


class Spares:
    """The newest deleted version of each model; safe to use from several threads.

    They lie where deleted versions lie, so that a crash leaves nothing that is not cleared up.
    """

    def __init__(self) -> None:
        self._held: dict[tuple[str, str], tuple[Path, tuple[ArraySpan, ...]]] = {}
        self._emptied: list[Path] = []
        self._lock = Lock()

    def put(self, ref: StateRef, folder: Path, spans: tuple[ArraySpan, ...]) -> None:
        """Keep the folder of a deleted version of these arrays; one held before is removed."""
        with self._lock:
            old = self._held.pop((ref.job, ref.model), None)
            self._held[ref.job, ref.model] = folder, spans
            useless = self._emptied + ([] if old is None else [old[0]])
            self._emptied = []
        for path in useless:
            files.remove_tree(path)

    def take(self, ref: StateRef, spans: tuple[ArraySpan, ...]) -> Path | None:
        """Folder whose arrays a version may be written over; None if there is none.

        One that was made otherwise is removed, and so is one whose files somebody linked
        elsewhere: what he holds must not change.
        """
        with self._lock:
            held = self._held.pop((ref.job, ref.model), None)
        if held is None:
            return None
        folder, old = held
        if old == spans and _is_reusable(folder, spans):
            return folder
        files.remove_tree(folder)
        return None

    def used(self, folder: Path) -> None:
        """Note that the arrays of a folder were moved out of it.

        It is removed with the next version that is deleted: file systems take their time for it,
        and a commit shall not wait.
        """
        with self._lock:
            self._emptied.append(folder)

    def drop(self, job: str | None = None) -> None:
        """Remove those of a job; None: all."""
        with self._lock:
            keys = [key for key in self._held if job in {None, key[0]}]
            folders = [self._held.pop(key)[0] for key in keys] + self._emptied
            self._emptied = []
        for folder in folders:
            files.remove_tree(folder)


def _is_reusable(folder: Path, spans: tuple[ArraySpan, ...]) -> bool:
    documents = zarr_documents(spans)
    try:
        for span in spans:
            document = folder / span.name / _ARRAY_DOCUMENT
            if document.read_text(encoding="utf-8") != documents[f"{span.name}/{document.name}"]:
                return False
            for chunk in span.chunks():
                status = (folder / chunk.key).stat()
                if status.st_nlink != 1 or status.st_size != chunk.file_bytes:
                    return False
    except (OSError, UnicodeDecodeError):
        return False
    return True
