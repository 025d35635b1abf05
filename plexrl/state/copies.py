"""Copies of versions that other groups made: in host memory, never in the store from here."""

from __future__ import annotations

from collections.abc import Callable

from plexrl.core.residency import COMMITTED_ON_HOST, ON_THE_WAY, Move, Residence
from plexrl.core.states import Manifest, StateRef, Tier
from plexrl.errors import StateError
from plexrl.state.arena import Arena
from plexrl.state.host import Fetched, HostTier


class Copies:
    """The copies in one group's host memory; safe to use from several threads.

    Parameters
    ----------
    host
        Where they lie.
    timeout_s
        How long to wait for room.
    """

    def __init__(self, host: HostTier, timeout_s: float) -> None:
        self._host = host
        self._pressure_timeout_s = timeout_s

    def fetch_here(self, ref: StateRef) -> Fetched | None:
        """Pin a version that is on host, or arrives there now; None if it is not.

        Ends with `release`.
        """
        start = self._host.clock()
        with self._host.condition:
            while (row := self._host.table.get(ref)) and row.residence in ON_THE_WAY:
                self._host.condition.wait()
            if row is None or row.residence not in COMMITTED_ON_HOST:
                return None
            self._host.table.pin(ref)
            return self._host.fetched(ref, Tier.HOST, start)

    def receive(
        self,
        manifest: Manifest,
        nbytes: int,
        fill: Callable[[memoryview], None],
        *,
        keep_versions: int,
    ) -> Fetched:
        """Take a copy of a version that another group made, and pin it; ends with `release`.

        It is never written to the store, and leaves host when room is needed.

        Parameters
        ----------
        manifest
            Of the version; the copy may be its first `nbytes` bytes only.
        fill
            Writes the bytes and checks them; what it raises ends the call.
        keep_versions
            Newest versions of this model that stay on host.

        Raises
        ------
        PressureError
            There is no room, and none came within the timeout.
        """
        ref, start = manifest.ref, self._host.clock()
        deadline_s = start + self._pressure_timeout_s
        while (found := self.fetch_here(ref)) is None:
            with self._host.condition:
                self._host.check_open()
                row = self._host.table.get(ref)
                if row is not None and row.residence is Residence.FILLING:
                    raise StateError(f"{ref} is being made here; a copy of it makes no sense")
                if row is not None and row.residence is not Residence.STORED:
                    continue
                self._host.check_budget(ref, nbytes)
                wait = self._host.try_room(nbytes)
                if wait is not None:
                    self._host.wait(deadline_s, ref, wait)
                    continue
                arena = self._host.seat(ref, Move.ASK, nbytes)
            return self._filled(manifest, arena, fill, keep_versions, start)
        return found

    def _filled(
        self,
        manifest: Manifest,
        arena: Arena,
        fill: Callable[[memoryview], None],
        keep_versions: int,
        start_s: float,
    ) -> Fetched:
        ref, has_arrived = manifest.ref, False
        try:
            fill(arena.view)
            has_arrived = True
        finally:
            with self._host.condition:
                if has_arrived:
                    self._host.arrive(manifest, keep_versions, self._host.clock() - start_s)
                else:
                    self._host.vacate(ref, Move.ASK_FAILED)
        with self._host.condition:
            return self._host.fetched(ref, Tier.GROUP, start_s)

    def drop(self, job: str) -> None:
        """Let the copies of a job's versions leave host once nobody uses them."""
        with self._host.condition:
            for row in self._host.table.rows(lambda r: r.ref.job == job):
                if row.residence is Residence.COPY:
                    self._host.table.make_obsolete(row.ref)
            self._host.sweep()
