"""Reads versions from the store before they are asked for: one thread."""

from __future__ import annotations

from threading import Thread

from plexrl.core.residency import Move, Residence
from plexrl.core.states import StateRef
from plexrl.errors import StateError
from plexrl.state.arena import Arena
from plexrl.state.host import HostTier

_MAX_WANTED = 4
"""Older hints are stale: a group has one next job, and jobs have few models."""


class ReadAhead:
    """The thread that brings wanted versions to host where nothing used sooner must leave."""

    def __init__(self, host: HostTier):
        self._host = host
        self._wanted: dict[StateRef, None] = {}
        self._is_stopping = False
        self._thread = Thread(target=self._run, name="plexrl-read-ahead", daemon=True)
        self._thread.start()

    def want(self, ref: StateRef) -> None:
        """Ask for a version the table knows."""
        with self._host.condition:
            self._wanted.pop(ref, None)
            self._wanted[ref] = None
            while len(self._wanted) > _MAX_WANTED:
                del self._wanted[next(iter(self._wanted))]
            self._host.condition.notify_all()

    def stop(self) -> None:
        """End after the read in flight."""
        with self._host.condition:
            self._is_stopping = True
            self._host.condition.notify_all()
        self._thread.join()

    def _run(self) -> None:
        while (work := self._take()) is not None:
            try:
                self._host.load(*work, pin=False)
            except Exception as error:  # noqa: BLE001  the thread outlives whatever a read raises
                is_known = isinstance(error, StateError)
                with self._host.condition:
                    self._host.last_error = (
                        str(error) if is_known else f"reading {work[0]} raised {error!r}"
                    )

    def _take(self) -> tuple[StateRef, Arena] | None:
        host = self._host
        with host.condition:
            while not self._is_stopping:
                for ref in list(self._wanted):
                    row = host.table.get(ref)
                    if row is None or row.residence is not Residence.STORED:
                        del self._wanted[ref]
                    elif host.try_room(row.nbytes, ref) is None:
                        del self._wanted[ref]
                        return ref, host.seat(ref, Move.LOAD, row.nbytes)
                host.condition.wait()
            return None
