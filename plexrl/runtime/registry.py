"""The registry in the store: which jobs were ever submitted, and which still have work to do.

``plexrl resume`` reads it after everything else is gone. One folder for all jobs, beside the
states::

    <store>/jobs/<name>.spec      the job, by cloudpickle
    <store>/jobs/<name>.end       why it ended: empty if it finished, `CANCELLED`, or an error
    <store>/states/               the Zarr store
"""

from __future__ import annotations

from pathlib import Path

from plexrl.errors import InputError, StoreAwayError
from plexrl.state.documents import open_documents
from plexrl.state.places import below, is_url

SPEC = ".spec"
END = ".end"
CANCELLED = "cancelled"
"""End of a job that its user cancelled: it is not resumed."""


def states_of(store: str | Path) -> str:
    """Where the Zarr store of states lies: path of a folder, or URL."""
    return below(store, "states")


def check_there(store: str | Path) -> None:
    """Check that a store has not gone away; nothing may be created in its place.

    Raises
    ------
    StoreAwayError
        It is not there.
    """
    if not is_url(store) and not Path(store).is_dir():
        raise StoreAwayError(
            f"the store {store} is not there any more; bring it back (mount it, or move it to its "
            "place)"
        )


class JobRegistry:
    """Jobs of one store, a folder or a URL; every write is one step.

    Raises
    ------
    StoreError
        The store cannot be opened, read or written; of every method too.
    """

    def __init__(self, store: str | Path) -> None:
        self._documents = open_documents(below(store, "jobs"))

    def save(self, name: str, spec: bytes) -> None:
        """Note a job that runs; one that is noted already, with this very description, stays."""
        if self._documents.get(name + SPEC) != spec:
            self._documents.put(name + SPEC, spec)
        self._documents.delete(name + END)

    def end(self, name: str, error: str) -> None:
        """Note that a job ended: with an error, or finished where that is empty."""
        self._documents.put(name + END, error.encode())

    def names(self) -> tuple[str, ...]:
        """All jobs, sorted."""
        names = self._documents.names()
        return tuple(sorted(n.removesuffix(SPEC) for n in names if n.endswith(SPEC)))

    def unfinished(self) -> tuple[str, ...]:
        """Jobs to go on with: interrupted ones and failed ones."""
        return tuple(name for name in self.names() if self.error(name) not in {"", CANCELLED})

    def error(self, name: str) -> str | None:
        """Why a job ended; empty if it finished, None if it has not ended."""
        content = self._documents.get(name + END)
        return None if content is None else content.decode()

    def spec(self, name: str) -> bytes:
        """A job's description, by cloudpickle.

        Raises
        ------
        InputError
            The store holds no job of this name.
        """
        content = self._documents.get(name + SPEC)
        if content is None:
            raise InputError(f"the store holds no job {name!r}")
        return content
