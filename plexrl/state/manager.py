"""The states of one group's jobs, in host memory and in the store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from types import TracebackType

from plexrl.clock import Clock, system_clock
from plexrl.core.layout import StateLayout
from plexrl.core.residency import (
    COMMITTED_ON_HOST,
    IN_STORE,
    ON_HOST,
    ON_THE_WAY,
    Move,
    Residence,
)
from plexrl.core.states import Manifest, StateRef, StoreUse, Tier, Traffic
from plexrl.errors import StateError, StoreError
from plexrl.state.arena import Arena
from plexrl.state.copies import Copies
from plexrl.state.host import Fetched, HostTier
from plexrl.state.read_ahead import ReadAhead
from plexrl.state.store import Store
from plexrl.state.write_behind import WriteBehind

PRESSURE_TIMEOUT_S = 30.0
"""Longer than any write of a state that fits the host; shorter than a worker's patience."""


def _clear_padding(view: memoryview, layout: StateLayout) -> None:
    end = 0
    for start, nbytes in [*((s.offset, s.nbytes) for s in layout.slots), (layout.nbytes, 0)]:
        if start > end:
            view[end:start] = bytes(start - end)
        end = start + nbytes


class StateManager:
    """Keeps versions of states under a host budget; safe to use from several threads.

    Parameters
    ----------
    store
        Where versions go that must last, or must leave host memory. Closed by its owner.
    host_budget_bytes
        Host memory for states, uncommitted ones included. A train function needs two
        states of its model at once: the version it starts from and the one it makes.
    pressure_timeout_s
        How long `allocate` and `fetch` wait for room.
    keep_versions
        Newest versions of a model that stay reachable, unless `commit` says it.
    retain_versions
        Durable versions of a model that stay in the store, and never fewer than stay
        reachable; None: all.
    retry_s, max_retry_s
        First and longest pause between attempts at a write that fails.
    max_unwritten
        Versions of a model that may be on their way to the store; `allocate` waits with more.
    """

    def __init__(
        self,
        store: Store,
        *,
        host_budget_bytes: int,
        pressure_timeout_s: float = PRESSURE_TIMEOUT_S,
        keep_versions: int = 1,
        retain_versions: int | None = 2,
        retry_s: float = 0.1,
        max_retry_s: float = 5.0,
        max_unwritten: int = 4,
        clock: Clock = system_clock,
    ):
        if keep_versions < 1 or (retain_versions is not None and retain_versions < 1):
            raise StateError(
                f"keep_versions={keep_versions}, retain_versions={retain_versions}; "
                "keep at least one version"
            )
        self._host = HostTier(store, host_budget_bytes, clock)
        self._store = store
        self._clock = clock
        self._pressure_timeout_s = pressure_timeout_s
        self._keep_versions = keep_versions
        self._max_unwritten = max_unwritten
        self._writer = WriteBehind(
            self._host, retain_versions=retain_versions, retry_s=retry_s, max_retry_s=max_retry_s
        )
        self._reader = ReadAhead(self._host)
        self.copies = Copies(self._host, pressure_timeout_s)

    def __enter__(self) -> StateManager:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Write what was committed as durable, end the threads, give the memory back.

        Raises
        ------
        StoreError
            Versions committed as durable could not be written; everything is closed.
        """
        with self._host.condition:
            if self._host.is_closed:
                return
            self._host.is_closed = True
            self._host.condition.notify_all()
        self._reader.stop()
        self._writer.stop()
        with self._host.condition:
            lost = self._host.unwritten(required=True)
            self._host.close()
        if lost:
            raise StoreError(
                f"{', '.join(map(str, lost))} could not be written to {self._store.root}: "
                f"{self._host.last_error}"
            )

    def allocate(self, ref: StateRef, layout: StateLayout) -> Arena:
        """Reserve host memory for a version to be made; its content is undefined.

        Only the padding between tensors is zero, so that a digest depends on tensors alone.
        Ends with `commit` or `abandon`.

        Raises
        ------
        PressureError
            There is no room and none came within the timeout, or there can be none: the
            message names the budget needed.
        StoreAwayError
            The store must take versions first, and fails to or takes too long.
        VersionFenceError
            This version or a newer one of the model is committed.
        """
        deadline_s = self._clock() + self._pressure_timeout_s
        stored = self._store.versions(ref.job, ref.model)
        nbytes = layout.nbytes
        with self._host.condition:
            while True:
                self._host.check_open()
                self._host.check_fence(ref, stored)
                self._host.check_budget(ref, nbytes)
                backlog = self._host.wait_of_backlog(ref.job, ref.model, self._max_unwritten)
                wait = backlog or self._host.try_room(nbytes)
                if wait is None:
                    arena = self._host.seat(ref, Move.RESERVE, nbytes)
                    break
                self._host.wait(deadline_s, ref, wait)
        _clear_padding(arena.view, layout)
        return arena

    def check_writable(self, job: str, model: str) -> None:
        """Check that a model may go on to its next version.

        Raises
        ------
        StoreAwayError
            Too many of its versions wait for a store that cannot be written.
        """
        with self._host.condition:
            wait = self._host.wait_of_backlog(job, model, self._max_unwritten)
            if wait is not None and self._host.write_error:
                self._host.wait(self._clock(), StateRef(job, model, 0), wait)

    def commit(
        self, manifest: Manifest, arena: Arena, *, durable: bool, keep_versions: int | None = None
    ) -> None:
        """Make an allocated version visible; its bytes must not change any more.

        Older versions of the model leave host as soon as nobody uses them.

        Parameters
        ----------
        manifest
            With the digest of the arena's bytes.
        durable
            Write it to the store in the background; `wait_durable` tells when it is there.
        keep_versions
            Newest versions of this model that stay reachable (1 + the job's staleness).

        Raises
        ------
        StateError
            The arena was not allocated for this version.
        """
        ref = manifest.ref
        with self._host.condition:
            self._host.check_open()
            row = self._host.table.get(ref)
            if (
                not row
                or row.residence is not Residence.FILLING
                or (self._host.arena(ref) is not arena)
            ):
                raise StateError(f"{arena} was not allocated for {ref}; allocate it first")
            if manifest.layout.nbytes != arena.nbytes:
                raise StateError(
                    f"{ref}: {arena} was allocated, the manifest's layout has "
                    f"{manifest.layout.nbytes} bytes"
                )
            self._host.enter(manifest)
            num_kept = keep_versions or self._keep_versions
            self._host.num_kept[ref.job, ref.model] = num_kept
            self._host.table.supersede(ref.job, ref.model, num_kept)
            if durable:
                self._host.table.require_store(ref)
            self._host.sweep()

    def abandon(self, arena: Arena) -> None:
        """Give an allocated arena back without commit."""
        with self._host.condition:
            for row in self._host.table.rows(lambda r: r.residence is Residence.FILLING):
                if self._host.arena(row.ref) is arena:
                    self._host.vacate(row.ref, Move.ABANDON)
                    return
        raise StateError(f"{arena} is not being filled; it was committed or abandoned before")

    def fetch(self, ref: StateRef) -> Fetched:
        """Bring a version to host and pin it there; ends with `release`.

        Raises
        ------
        IntegrityError
            The stored bytes are damaged; `latest` gives the last good version.
        PressureError
            There is no room, and none came within the timeout.
        StoreAwayError
            The store cannot be used now, or must take versions first, and fails to.
        StoreError
            The version is in no tier, or the store cannot be read.
        """
        start = self._clock()
        deadline_s = start + self._pressure_timeout_s
        while True:
            self._host.find(ref)
            with self._host.condition:
                self._host.check_open()
                row = self._host.table.get(ref)
                if row is None:
                    continue
                if row.residence is Residence.FILLING:
                    raise StateError(f"{ref} is not committed yet; fetch an older version")
                if row.residence in COMMITTED_ON_HOST:
                    self._host.table.pin(ref)
                    return self._host.fetched(ref, Tier.HOST, start)
                if row.residence in ON_THE_WAY:
                    self._host.condition.wait()
                    continue
                self._host.check_budget(ref, row.nbytes)
                wait = self._host.try_room(row.nbytes)
                if wait is not None:
                    self._host.wait(deadline_s, ref, wait)
                    continue
                arena = self._host.seat(ref, Move.LOAD, row.nbytes)
            self._host.load(ref, arena, pin=True)
            with self._host.condition:
                return self._host.fetched(ref, Tier.STORE, start)

    def release(self, ref: StateRef) -> None:
        """End one use of a fetched version."""
        with self._host.condition:
            self._host.table.unpin(ref)
            self._host.sweep()

    def prefetch(self, ref: StateRef) -> None:
        """Have a version read to host in the background, if nothing used sooner must leave.

        A hint: what goes wrong shows in `store_use`, and again when the version is fetched.
        """
        try:
            self._host.find(ref)
        except StateError as error:
            with self._host.condition:
                self._host.last_error = str(error)
            return
        self._reader.want(ref)

    def set_next_use(self, order: Sequence[tuple[str, str]]) -> None:
        """Say in which order (job, model) are used next, soonest first."""
        with self._host.condition:
            self._host.table.set_next_use(order)
            self._host.condition.notify_all()

    def drop_job(self, job: str, wait_s: float = 0.0) -> None:
        """Let a job's states leave host: at once, or once released and, if durable, written.

        Its stored versions stay; what was committed without `durable` and not flushed goes.

        Parameters
        ----------
        wait_s
            Wait that long until they have left, and another process may write the job.

        Raises
        ------
        StateError
            Somebody still uses one after that time.
        """
        deadline_s = self._clock() + wait_s
        with self._host.condition:
            for row in self._host.table.rows(lambda r: r.ref.job == job):
                self._host.table.make_obsolete(row.ref)
            self._host.sweep()
            while rows := self._host.table.rows(lambda r: r.ref.job == job):
                left_s = deadline_s - self._clock()
                if wait_s and left_s <= 0:
                    raise StateError(
                        f"{rows[0].ref} is still in use {wait_s:g} s after its job was let go of; "
                        "wait for what reads it, or restart the worker"
                    )
                if not wait_s:
                    return
                self._host.condition.wait(left_s)
            # Still clearing up after a write, the writer would claim the job again.
            self._host.condition.wait_for(lambda: self._writer.job != job, self._pressure_timeout_s)
            self._store.release_job(job)

    def latest(self, job: str, model: str) -> Manifest | None:
        """Manifest of the newest committed version on host or in the store; None: no version."""
        with self._host.condition:
            newest = self._host.newest(job, model)
            on_host = self._host.manifest(newest.ref) if newest else None
        stored = self._store.versions(job, model)
        if on_host and (not stored or stored[-1] <= on_host.ref.version):
            return on_host
        return self._store.latest(job, model) or on_host

    def recent(self, job: str, model: str) -> tuple[Manifest, ...]:
        """Manifests of the versions on host and in the store, oldest first; damaged ones not."""
        with self._host.condition:
            rows = self._host.table.rows(lambda row: (row.ref.job, row.ref.model) == (job, model))
            held = {row.ref.version: self._host.manifest(row.ref) for row in rows}
        found = {version: manifest for version, manifest in held.items() if manifest}
        for version in self._store.versions(job, model):
            if version not in found:
                with suppress(StateError):
                    found[version] = self._store.manifest(StateRef(job, model, version))
        return tuple(found[version] for version in sorted(found))

    def manifest(self, ref: StateRef) -> Manifest:
        """Manifest of a committed version.

        Raises
        ------
        StateError
            It is in no tier, or damaged.
        """
        with self._host.condition:
            known = self._host.manifest(ref)
        return known or self._store.manifest(ref)

    def flush(self, timeout_s: float) -> None:
        """Write all committed versions to the store, also those not committed as durable.

        Raises
        ------
        StoreError
            They were not written in time; the message has the last failure.
        """
        with self._host.condition:
            refs = self._host.unwritten(required=False)
            self._host.require_store(refs)
        for ref in refs:
            self.wait_durable(ref, timeout_s)

    def wait_durable(self, ref: StateRef, timeout_s: float) -> None:
        """Wait until a version is in the store.

        Raises
        ------
        StoreError
            It was not written in time; the message has the last failure.
        StateError
            It is in no tier.
        """
        deadline_s = self._clock() + timeout_s
        with self._host.condition:
            while (row := self._host.table.get(ref)) and row.residence not in IN_STORE:
                if row.residence is Residence.FILLING:
                    raise StateError(f"{ref} is not committed yet; commit it first")
                self._host.require_store([ref])
                left = deadline_s - self._clock()
                if left <= 0:
                    raise StoreError(
                        f"{ref} was not written to {self._store.root} within {timeout_s} s; "
                        f"last failure: {self._host.last_error or 'none, the disk is slow'}"
                    )
                self._host.condition.wait(left)
        if row is None and not self._store.contains(ref):
            raise StateError(f"{ref} is in no tier; commit it first")

    def note_move(self, source: Tier, target: Tier, nbytes: int, seconds: float) -> None:
        """Count a movement that the service made, to or from a device."""
        with self._host.condition:
            self._host.record(source, target, nbytes, seconds)

    def traffic(self) -> tuple[Traffic, ...]:
        """Movements since the start."""
        with self._host.condition:
            return self._host.traffic()

    def resident(self) -> Mapping[str, tuple[str, ...]]:
        """Host and store → states in it, as far as this group has used them."""
        with self._host.condition:
            rows = self._host.table.rows()
            return {
                Tier.HOST: tuple(str(row.ref) for row in rows if row.residence in ON_HOST),
                Tier.STORE: tuple(str(row.ref) for row in rows if row.residence in IN_STORE),
            }

    @property
    def host_used_bytes(self) -> int:
        """Host memory in use, uncommitted arenas included."""
        with self._host.condition:
            return self._host.table.host_used_bytes

    @property
    def host_budget_bytes(self) -> int:
        """Host memory for states."""
        return self._host.table.host_budget_bytes

    def store_use(self) -> StoreUse:
        """What lies in the store, and what went wrong there."""
        with self._host.condition:
            stored = self._host.table.rows(lambda row: row.residence in IN_STORE)
            waiting = self._host.table.rows(lambda row: row.must_store)
            return StoreUse(
                num_bytes=sum(row.nbytes for row in stored),
                num_waiting=len(waiting),
                num_waiting_bytes=sum(row.nbytes for row in waiting),
                num_damaged=self._store.num_damaged,
                num_failed_writes=self._host.num_failed_writes,
                error=self._host.last_error or "",
            )
