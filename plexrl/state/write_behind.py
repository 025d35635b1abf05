"""Writes committed versions to the store beside compute: one thread, in version order."""

from __future__ import annotations

from threading import Thread

from plexrl.core.residency import Move, Residence
from plexrl.core.states import StateRef, Tier
from plexrl.errors import StateError
from plexrl.state.host import HostTier


class WriteBehind:
    """The thread that writes what must be stored.

    A failed write leaves the version dirty and is repeated, each time after twice the pause.

    Parameters
    ----------
    retain_versions
        Versions of a model that stay in the store; None: all.
    retry_s, max_retry_s
        First and longest pause after failed writes.
    """

    def __init__(
        self, host: HostTier, *, retain_versions: int | None, retry_s: float, max_retry_s: float
    ):
        self._host = host
        self._retain_versions = retain_versions
        self._retry_s = retry_s
        self._max_retry_s = max_retry_s
        self._is_stopping = False
        self._num_failures = 0
        self.job = ""
        """Job whose version it writes, or whose old ones it deletes, right now; else empty."""
        self._thread = Thread(target=self._run, name="plexrl-write-behind", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Write what must be stored, and end; a write that fails now is not repeated."""
        with self._host.condition:
            self._is_stopping = True
            self._host.condition.notify_all()
        self._thread.join()

    def _run(self) -> None:
        while (ref := self._take()) is not None:
            try:
                self._write(ref)
                self._retain(ref)
            except Exception as error:  # noqa: BLE001  the thread outlives whatever a write raises
                if not self._pause(ref, error):
                    return
            finally:
                with self._host.condition:
                    self.job = ""
                    self._host.condition.notify_all()

    def _take(self) -> StateRef | None:
        host = self._host
        with host.condition:
            while True:
                ref = host.table.next_write(host.urgent)
                if ref is not None:
                    host.table.apply(ref, Move.WRITE)
                    self.job = ref.job
                    return ref
                if self._is_stopping:
                    return None
                host.condition.wait()

    def _write(self, ref: StateRef) -> None:
        host = self._host
        with host.condition:
            manifest, arena = host.manifest(ref), host.arena(ref)
        assert manifest is not None
        start = host.clock()
        host.store.write(manifest, arena.view)
        with host.condition:
            host.table.apply(ref, Move.WRITTEN)
            host.record(Tier.HOST, Tier.STORE, arena.nbytes, host.clock() - start)
            host.last_error = host.write_error = None
            host.urgent = tuple(other for other in host.urgent if other != ref)
            self._num_failures = 0
            host.sweep()

    def _retain(self, ref: StateRef) -> None:
        if self._retain_versions is None:
            return
        host = self._host
        keep = max(self._retain_versions, host.num_kept.get((ref.job, ref.model), 1))
        deleted = host.store.retain(ref.job, ref.model, keep)
        with host.condition:
            for old in deleted:
                row = host.table.get(old)
                if row and row.residence is Residence.STORED:
                    host.vacate(old, Move.LOSE)

    def _pause(self, ref: StateRef, error: Exception) -> bool:
        """Note the failure and wait; returns whether to go on."""
        host = self._host
        with host.condition:
            row = host.table.get(ref)
            if row and row.residence is Residence.WRITING:
                host.table.apply(ref, Move.WRITE_FAILED)
            host.num_failed_writes += 1
            is_known = isinstance(error, StateError)
            host.write_error = str(error) if is_known else f"writing {ref} raised {error!r}"
            host.last_error = host.write_error
            host.condition.notify_all()
            pause_s = min(self._retry_s * 2**self._num_failures, self._max_retry_s)
            self._num_failures = min(self._num_failures + 1, 32)
            host.condition.wait_for(lambda: self._is_stopping, pause_s)
            return not self._is_stopping
