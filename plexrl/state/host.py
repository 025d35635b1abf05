"""The host tier: arenas under a byte budget, with the table that says what each holds.

Every method wants `condition` held unless it says otherwise. Bytes are moved without it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from threading import Condition

from plexrl.clock import Clock
from plexrl.core.residency import (
    COMMITTED_ON_HOST,
    Move,
    NoRoom,
    Residence,
    ResidencyTable,
    Room,
    Row,
)
from plexrl.core.states import Manifest, StateRef, Tier, Traffic
from plexrl.errors import (
    IntegrityError,
    PressureError,
    StateError,
    StoreAwayError,
    VersionFenceError,
)
from plexrl.state.arena import Arena, ArenaPool
from plexrl.state.store import Store


@dataclass(frozen=True, slots=True)
class Wait:
    """Why a version cannot be made or fetched yet."""

    reason: str
    is_for_store: bool = False
    """Whether a write to the store ends it."""


@dataclass(frozen=True, slots=True)
class Fetched:
    """A version on host, pinned until `StateManager.release`."""

    arena: Arena
    """Read only: a committed version never changes."""
    source: Tier
    """`Tier.HOST` if it was there or on its way, `Tier.STORE` if it was read for this call."""
    seconds: float
    """Time the caller waited."""
    nbytes: int
    manifest: Manifest


class HostTier:
    """Arenas of versions, what is known about them, and how much has moved."""

    def __init__(self, store: Store, budget_bytes: int, clock: Clock):
        self.store = store
        self.clock = clock
        self.condition = Condition()
        self.table = ResidencyTable(budget_bytes)
        self.urgent: tuple[StateRef, ...] = ()
        """Versions whose write somebody waits for to get room."""
        self.last_error: str | None = None
        """Of the background threads; None again after the next success."""
        self.write_error: str | None = None
        """Why the last write failed; None if it did not."""
        self.num_failed_writes = 0
        self.is_closed = False
        self.num_kept: dict[tuple[str, str], int] = {}
        """(job, model) → newest versions that stay reachable."""
        self._pool = ArenaPool(budget_bytes)
        self._arenas: dict[StateRef, Arena] = {}
        self._manifests: dict[StateRef, Manifest] = {}
        self._traffic: dict[tuple[Tier, Tier], Traffic] = {}

    def arena(self, ref: StateRef) -> Arena:
        """Arena of a version on host."""
        return self._arenas[ref]

    def manifest(self, ref: StateRef) -> Manifest | None:
        """Manifest of a version the table knows."""
        return self._manifests.get(ref)

    def fetched(self, ref: StateRef, source: Tier, start_s: float) -> Fetched:
        """A version that was pinned for somebody who asked at `start_s`."""
        manifest, arena = self._manifests[ref], self._arenas[ref]
        return Fetched(arena, source, self.clock() - start_s, arena.nbytes, manifest)

    def seat(self, ref: StateRef, move: Move, nbytes: int) -> Arena:
        """Give a version an arena; room was made before."""
        self.table.apply(ref, move, nbytes)
        self._arenas[ref] = self._pool.acquire(nbytes)
        return self._arenas[ref]

    def vacate(self, ref: StateRef, move: Move) -> None:
        """Make a move that ends with the version off the host, or out of the table."""
        row = self.table.apply(ref, move)
        if row is None:
            self._manifests.pop(ref, None)
        if ref in self._arenas:
            self._pool.release(self._arenas.pop(ref))
        self.condition.notify_all()

    def arrive(self, manifest: Manifest, keep_versions: int, seconds: float) -> None:
        """Make a filled arena a copy in use; older copies of its model may leave."""
        ref = manifest.ref
        row = self.table.apply(ref, Move.ARRIVED)
        assert row is not None
        self._manifests[ref] = manifest
        self.table.pin(ref)
        self.record(Tier.GROUP, Tier.HOST, row.nbytes, seconds)
        self.table.supersede(ref.job, ref.model, keep_versions)
        self.sweep()

    def enter(self, manifest: Manifest) -> None:
        """Make a filled arena a committed version."""
        self.table.apply(manifest.ref, Move.COMMIT)
        self._manifests[manifest.ref] = manifest

    def sweep(self) -> None:
        """Discard what nobody needs any more, and wake who waits."""
        for ref in self.table.droppable():
            self.vacate(ref, Move.DISCARD)
        self.condition.notify_all()

    def require_store(self, refs: Sequence[StateRef]) -> None:
        """Have versions written because room is needed; wakes the writer if that is news."""
        news = [ref for ref in refs if not self.table.row(ref).must_store]
        for ref in news:
            self.table.require_store(ref)
        if news:
            self.urgent = tuple(refs)
            self.condition.notify_all()

    def try_room(self, nbytes: int, later_than: StateRef | None = None) -> Wait | None:
        """Make room now if that is possible.

        Returns
        -------
        Wait or None
            None: there is room.
        """
        outcome = self.table.make_room(nbytes, later_than=later_than)
        if isinstance(outcome, NoRoom):
            return Wait(outcome.reason)
        if isinstance(outcome, Room):
            for ref in outcome.evict:
                self.vacate(ref, Move.EVICT)
            return None
        self.require_store(outcome.write)
        waits = f"it waits until {', '.join(map(str, outcome.write))} are in the store"
        return Wait(waits, is_for_store=True)

    def wait_of_backlog(self, job: str, model: str, limit: int) -> Wait | None:
        """What a model waits for that has too many versions on their way to the store."""
        rows = self.table.rows(
            lambda row: (row.ref.job, row.ref.model) == (job, model) and row.must_store
        )
        if len(rows) < limit:
            return None
        waits = f"{len(rows)} versions of {job}/{model} are committed but not in the store yet"
        return Wait(waits, is_for_store=True)

    def check_fence(self, ref: StateRef, stored: Sequence[int]) -> None:
        """Check that a version may be made.

        Parameters
        ----------
        stored
            Versions of the model in the store, oldest first.

        Raises
        ------
        VersionFenceError
            It or a newer one is committed, or it is being made.
        """
        row = self.table.get(ref)
        if row and row.residence is Residence.FILLING:
            raise VersionFenceError(f"{ref} is being made already; commit or abandon it first")
        newest = self.newest(ref.job, ref.model)
        held = max(*stored[-1:], newest.ref.version if newest else -1, -1)
        if held >= ref.version:
            raise VersionFenceError(
                f"{ref} cannot be made: version {held} of {ref.job}/{ref.model} is committed; "
                f"go on with version {held + 1}, or use another job name"
            )

    def check_budget(self, ref: StateRef, nbytes: int) -> None:
        """Check that a version could fit at all.

        Raises
        ------
        PressureError
            The budget is too small for it and what its own model has pinned.
        """
        own = self.table.rows(
            lambda row: (row.ref.job, row.ref.model) == (ref.job, ref.model) and row.num_pins > 0
        )
        least = nbytes + sum(row.nbytes for row in own)
        if least > self.table.host_budget_bytes:
            beside = f" beside the pinned {', '.join(str(row.ref) for row in own)}" if own else ""
            raise PressureError(
                f"{ref} needs {nbytes} bytes of host memory{beside}, but the budget is "
                f"{self.table.host_budget_bytes}; set host_budget_bytes to at least {least}"
            )

    def check_open(self) -> None:
        """Check that versions can still be written.

        Raises
        ------
        StateError
            The manager was closed.
        """
        if self.is_closed:
            raise StateError("the state manager is closed; open another one on the same store")

    def wait(self, deadline_s: float, ref: StateRef, wait: Wait) -> None:
        """Wait until something changed.

        Raises
        ------
        StoreAwayError
            It waits for the store, and writes fail or take too long.
        PressureError
            The deadline is over.
        """
        left = deadline_s - self.clock()
        if wait.is_for_store and (self.write_error or left <= 0):
            # At once: who holds a group must not keep it while the store is away.
            slow = "no write failed, but the store is too slow"
            why = f"the last write failed: {self.write_error}" if self.write_error else slow
            raise StoreAwayError(f"{wait.reason}; {why}")
        if left <= 0:
            raise PressureError(
                f"no host memory for {ref}: {wait.reason}; raise host_budget_bytes, or let fewer "
                "jobs share the group"
            )
        self.condition.wait(left)

    def find(self, ref: StateRef) -> None:
        """Have the table know a version; looks into the store. Takes `condition` itself.

        Raises
        ------
        StateError
            It is in no tier, or its manifest is damaged.
        """
        with self.condition:
            if self.table.get(ref):
                return
        manifest = self.store.manifest(ref)
        with self.condition:
            if self.table.get(ref) is None:
                self.table.apply(ref, Move.FIND, manifest.layout.nbytes)
                self._manifests[ref] = manifest

    def load(self, ref: StateRef, arena: Arena, *, pin: bool) -> None:
        """Read a version seated by `Move.LOAD`. Takes `condition` itself, not while it reads.

        Raises
        ------
        IntegrityError
            The version is damaged; it was moved aside in the store and left the table.
        StoreError
            The store cannot be read.
        """
        start = self.clock()
        move = Move.LOAD_FAILED
        try:
            self.store.read(ref, arena.view)
            move = Move.LOADED
        except IntegrityError:
            move = Move.LOSE
            raise
        except StateError:
            if not self.store.contains(ref):
                move = Move.LOSE
            raise
        finally:
            with self.condition:
                if move is Move.LOADED:
                    self.table.apply(ref, move)
                    self.record(Tier.STORE, Tier.HOST, arena.nbytes, self.clock() - start)
                    if pin:
                        self.table.pin(ref)
                    self.sweep()
                else:
                    self.vacate(ref, move)

    def record(self, source: Tier, target: Tier, nbytes: int, seconds: float) -> None:
        """Count one movement."""
        old = self._traffic.get((source, target), Traffic(source, target))
        self._traffic[source, target] = replace(
            old,
            num_moves=old.num_moves + 1,
            num_bytes=old.num_bytes + nbytes,
            seconds=old.seconds + seconds,
        )

    def traffic(self) -> tuple[Traffic, ...]:
        """All movements so far, by source and target."""
        return tuple(self._traffic[key] for key in sorted(self._traffic))

    def newest(self, job: str, model: str) -> Row | None:
        """Newest version committed here, on host, that is not to leave."""
        rows = self.table.rows(
            lambda row: (
                (row.ref.job, row.ref.model) == (job, model)
                and row.residence in COMMITTED_ON_HOST - {Residence.COPY}
                and not row.is_obsolete
            )
        )
        return rows[-1] if rows else None

    def unwritten(self, *, required: bool) -> tuple[StateRef, ...]:
        """Committed versions that are not in the store (required: and must come there)."""
        rows = self.table.rows(lambda r: r.residence in {Residence.DIRTY, Residence.WRITING})
        return tuple(row.ref for row in rows if row.must_store or not required)

    def close(self) -> None:
        """Give all memory back."""
        for arena in self._arenas.values():
            arena.close()
        self._arenas.clear()
        self._pool.close()
