"""Which version of which state is in which tier, and what may leave host memory: pure.

The table covers the tiers host and store; which states are on a device is noted as the
service tells it. It decides, it never moves bytes: the state manager asks, acts, and tells.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from plexrl.core.states import StateRef
from plexrl.errors import PressureError, StateError

_HISTORY_LENGTH = 8


class Residence(StrEnum):
    """Where a version is between host and store."""

    FILLING = "filling"
    """Host memory is reserved, an engine writes into it; not committed."""
    DIRTY = "dirty"
    """Committed, on host only."""
    WRITING = "writing"
    """On host, on its way to the store."""
    CLEAN = "clean"
    """On host and in the store."""
    STORED = "stored"
    """In the store only."""
    LOADING = "loading"
    """In the store, on its way to host."""
    ARRIVING = "arriving"
    """On its way from the host memory of another group."""
    COPY = "copy"
    """A copy of what another group made: on host, and for anything else that group's business."""


class Move(StrEnum):
    """What can happen to a version."""

    RESERVE = "reserve"
    ABANDON = "abandon"
    COMMIT = "commit"
    WRITE = "write"
    WRITTEN = "written"
    WRITE_FAILED = "write_failed"
    EVICT = "evict"
    FIND = "find"
    LOAD = "load"
    LOADED = "loaded"
    LOAD_FAILED = "load_failed"
    ASK = "ask"
    ARRIVED = "arrived"
    ASK_FAILED = "ask_failed"
    LOSE = "lose"
    """It is no longer in the store: quarantined or deleted there."""
    DISCARD = "discard"
    """Nobody needs it any more."""


R, M = Residence, Move
MOVES: Mapping[tuple[Residence | None, Move], Residence | None] = {
    (None, M.RESERVE): R.FILLING,
    (R.FILLING, M.ABANDON): None,
    (R.FILLING, M.COMMIT): R.DIRTY,
    (R.DIRTY, M.WRITE): R.WRITING,
    (R.WRITING, M.WRITTEN): R.CLEAN,
    (R.WRITING, M.WRITE_FAILED): R.DIRTY,
    (R.CLEAN, M.EVICT): R.STORED,
    (None, M.FIND): R.STORED,
    (R.STORED, M.LOAD): R.LOADING,
    (R.LOADING, M.LOADED): R.CLEAN,
    (R.LOADING, M.LOAD_FAILED): R.STORED,
    (R.LOADING, M.LOSE): None,
    (R.STORED, M.LOSE): None,
    (None, M.ASK): R.ARRIVING,
    (R.STORED, M.ASK): R.ARRIVING,
    (R.ARRIVING, M.ARRIVED): R.COPY,
    (R.ARRIVING, M.ASK_FAILED): None,
    (R.COPY, M.EVICT): None,
    (R.COPY, M.DISCARD): None,
    (R.DIRTY, M.DISCARD): None,
    (R.CLEAN, M.DISCARD): None,
    (R.STORED, M.DISCARD): None,
}
"""Legal moves; None is a version the table does not know."""

ON_HOST = frozenset({R.FILLING, R.DIRTY, R.WRITING, R.CLEAN, R.LOADING, R.ARRIVING, R.COPY})
COMMITTED_ON_HOST = frozenset({R.DIRTY, R.WRITING, R.CLEAN, R.COPY})
ON_THE_WAY = frozenset({R.LOADING, R.ARRIVING})
EVICTABLE = frozenset({R.CLEAN, R.COPY})
"""On host and somewhere else too."""
IN_STORE = frozenset({R.CLEAN, R.STORED, R.LOADING})


@dataclass(frozen=True, slots=True)
class Row:
    """One version."""

    ref: StateRef
    nbytes: int
    residence: Residence
    num_pins: int = 0
    """Users of its host memory; a pinned version does not leave host."""
    must_store: bool = False
    """It shall be written to the store, because durability or pressure asks for it."""
    is_obsolete: bool = False
    """Newer versions replace it: it leaves once unpinned and, if it must be stored, written."""
    last_use: int = 0
    """Position in the order of uses; larger is later."""
    history: tuple[str, ...] = ()
    """Its last moves, oldest first."""


@dataclass(frozen=True, slots=True)
class Room:
    """There is room once these clean versions have left host."""

    evict: tuple[StateRef, ...]


@dataclass(frozen=True, slots=True)
class RoomAfterWrites:
    """There will be room when these dirty versions are in the store."""

    write: tuple[StateRef, ...]
    """Dirty or being written, in the order in which they shall be written."""


@dataclass(frozen=True, slots=True)
class NoRoom:
    """There is no room, and waiting for writes does not help."""

    reason: str
    """Who holds what."""


def _take(need: int, rows: Iterator[Row]) -> tuple[tuple[StateRef, ...], int]:
    """First rows that give `need` bytes, and the bytes still missing."""
    taken: list[StateRef] = []
    for row in rows:
        if need <= 0:
            break
        need -= row.nbytes
        taken.append(row.ref)
    return tuple(taken), need


class ResidencyTable:
    """Versions of states between host and store.

    Parameters
    ----------
    host_budget_bytes
        Host memory for states, those being filled or loaded included.
    """

    def __init__(self, host_budget_bytes: int):
        self.host_budget_bytes = host_budget_bytes
        self._rows: dict[StateRef, Row] = {}
        self._next_use: dict[tuple[str, str], int] = {}
        self._num_uses = 0

    @property
    def host_used_bytes(self) -> int:
        """Bytes of host memory in use."""
        return sum(row.nbytes for row in self._rows.values() if row.residence in ON_HOST)

    def get(self, ref: StateRef) -> Row | None:
        """The row of a version; None if unknown."""
        return self._rows.get(ref)

    def row(self, ref: StateRef) -> Row:
        """The row of a version.

        Raises
        ------
        StateError
            The table does not know it.
        """
        found = self._rows.get(ref)
        if found is None:
            raise StateError(f"{ref} is in no tier; commit it first")
        return found

    def rows(self, where: Callable[[Row], bool] = lambda _: True) -> tuple[Row, ...]:
        """Rows that satisfy the condition, by name and version."""
        return tuple(self._rows[ref] for ref in sorted(self._rows) if where(self._rows[ref]))

    def apply(self, ref: StateRef, move: Move, nbytes: int = 0) -> Row | None:
        """Make a move.

        Parameters
        ----------
        nbytes
            Bytes on host, for `Move.RESERVE`, `Move.FIND` and `Move.ASK`.

        Returns
        -------
        Row or None
            The row after the move; None if the version left the table.

        Raises
        ------
        StateError
            The move is illegal here; the message has the version's history.
        PressureError
            The move needs host memory that is not free.
        """
        old = self._rows.get(ref)
        residence = old.residence if old else None
        if (residence, move) not in MOVES:
            raise self._illegal(ref, move, f"it is {residence or 'unknown'}")
        after = MOVES[residence, move]
        if old is None or move is M.ASK:
            # A copy has the weights alone, so it may be smaller than what the store has.
            old = Row(ref, nbytes, R.STORED)
        self._guard(old, residence, move, after)
        if after is None:
            self._rows.pop(ref, None)
            return None
        history = (*old.history, str(move))[-_HISTORY_LENGTH:]
        row = replace(old, residence=after, history=history)
        if move is M.WRITTEN:
            row = replace(row, must_store=False)
        self._rows[ref] = row
        if move in {M.RESERVE, M.COMMIT, M.LOADED, M.ARRIVED, M.WRITE_FAILED}:
            self._touch(ref)
        return self._rows[ref]

    def _guard(
        self, row: Row, before: Residence | None, move: Move, after: Residence | None
    ) -> None:
        if move in {M.EVICT, M.DISCARD} and row.num_pins:
            raise self._illegal(row.ref, move, f"it is pinned {row.num_pins} times")
        if move is M.DISCARD and not row.is_obsolete:
            raise self._illegal(row.ref, move, "nothing replaces it")
        if move is M.DISCARD and row.must_store and before is R.DIRTY:
            raise self._illegal(row.ref, move, "it must be stored first")
        free = self.host_budget_bytes - self.host_used_bytes
        if before not in ON_HOST and after in ON_HOST and row.nbytes > free:
            raise PressureError(
                f"{row.ref} needs {row.nbytes} bytes of host memory, {free} are free; "
                "make room first"
            )

    def _illegal(self, ref: StateRef, move: Move, why: str) -> StateError:
        row = self._rows.get(ref)
        history = ", ".join(row.history) if row else "none"
        return StateError(f"{ref} cannot {move}: {why}; its moves so far: {history}")

    def _touch(self, ref: StateRef) -> None:
        self._num_uses += 1
        self._rows[ref] = replace(self._rows[ref], last_use=self._num_uses)

    def pin(self, ref: StateRef) -> None:
        """Count one more user of its host memory.

        Raises
        ------
        StateError
            It is not committed on host.
        """
        row = self.row(ref)
        if row.residence not in COMMITTED_ON_HOST:
            raise StateError(f"{ref} cannot be pinned: it is {row.residence}; fetch it first")
        self._rows[ref] = replace(row, num_pins=row.num_pins + 1)
        self._touch(ref)

    def unpin(self, ref: StateRef) -> None:
        """Count one user less.

        Raises
        ------
        StateError
            It has none.
        """
        row = self.row(ref)
        if not row.num_pins:
            raise StateError(f"{ref} is released but not pinned; release once per fetch")
        self._rows[ref] = replace(row, num_pins=row.num_pins - 1)

    def require_store(self, ref: StateRef) -> None:
        """Have a dirty version written to the store; no-op where it is in the store."""
        row = self.row(ref)
        if row.residence in {R.DIRTY, R.WRITING}:
            self._rows[ref] = replace(row, must_store=True)

    def make_obsolete(self, ref: StateRef) -> None:
        """Let a version leave: newer versions replace it, or its job is gone."""
        self._rows[ref] = replace(self.row(ref), is_obsolete=True)

    def supersede(self, job: str, model: str, keep: int) -> None:
        """Make all but the newest `keep` committed versions of a model obsolete."""
        committed = [
            row.ref
            for row in self.rows(lambda r: (r.ref.job, r.ref.model) == (job, model))
            if row.residence is not R.FILLING
        ]
        for ref in committed[:-keep]:
            self.make_obsolete(ref)

    def droppable(self) -> tuple[StateRef, ...]:
        """Obsolete versions that may be discarded now."""
        return tuple(
            row.ref
            for row in self.rows(lambda r: r.is_obsolete and not r.num_pins)
            if row.residence in {R.CLEAN, R.STORED, R.COPY}
            or (row.residence is R.DIRTY and not row.must_store)
        )

    def set_next_use(self, order: Sequence[tuple[str, str]]) -> None:
        """Say in which order (job, model) will be used; the first mention of each counts."""
        self._next_use = {}
        for index, key in enumerate(order):
            self._next_use.setdefault(key, index)

    def _rank(self, ref: StateRef) -> int:
        """Position of the next use; models the order does not name come last."""
        return self._next_use.get((ref.job, ref.model), len(self._next_use) + 1_000_000_000)

    def _leaving_order(self, row: Row) -> tuple[bool, int, int]:
        return (not row.is_obsolete, -self._rank(row.ref), row.last_use)

    def make_room(
        self, nbytes: int, *, later_than: StateRef | None = None
    ) -> Room | RoomAfterWrites | NoRoom:
        """What must leave host so that `nbytes` fit: furthest next use first, then LRU.

        Clean versions leave before dirty ones are written for it; nothing dirty or pinned
        is ever named in `Room.evict`.

        Parameters
        ----------
        nbytes
            Bytes needed.
        later_than
            Only versions used later than this one may leave (for prefetch).
        """
        need = nbytes - (self.host_budget_bytes - self.host_used_bytes)
        rows = sorted(self._unpinned(later_than), key=self._leaving_order)
        evict, need = _take(need, (row for row in rows if row.residence in EVICTABLE))
        if need <= 0:
            return Room(evict)
        write, need = _take(need, (row for row in rows if row.residence not in EVICTABLE))
        if need <= 0:
            return RoomAfterWrites(write)
        return NoRoom(self._explain(nbytes, later_than))

    def _unpinned(self, later_than: StateRef | None) -> Iterator[Row]:
        for row in self._rows.values():
            if row.residence not in COMMITTED_ON_HOST or row.num_pins:
                continue
            if (
                later_than is None
                or row.is_obsolete
                or self._rank(row.ref) > self._rank(later_than)
            ):
                yield row

    def _explain(self, nbytes: int, later_than: StateRef | None) -> str:
        busy = [
            f"{row.ref} ({row.nbytes} bytes, "
            f"{f'pinned {row.num_pins} times' if row.num_pins else row.residence})"
            for row in self.rows(lambda r: r.residence in ON_HOST)
            if row.num_pins or row.residence in {R.FILLING, *ON_THE_WAY} or later_than
        ]
        return (
            f"{nbytes} bytes do not fit into the host budget of {self.host_budget_bytes}: "
            f"{self.host_used_bytes} are in use, held by {', '.join(busy) or 'nobody'}"
        )

    def next_write(self, first: Sequence[StateRef] = ()) -> StateRef | None:
        """The version to write next; None if none must be written.

        Versions of one model go in order; a model named in `first` goes before others,
        otherwise the one used longest ago (a failed write counts as a use, so that it
        does not hold up the others).
        """
        waiting = self.rows(lambda r: r.residence is R.DIRTY and r.must_store)
        urgent = {(ref.job, ref.model) for ref in first}
        oldest: dict[tuple[str, str], Row] = {}
        for row in waiting:
            oldest.setdefault((row.ref.job, row.ref.model), row)
        heads = sorted(oldest.values(), key=lambda r: r.last_use)
        for row in heads:
            if (row.ref.job, row.ref.model) in urgent:
                return row.ref
        return heads[0].ref if heads else None

    def check(self) -> None:
        """Check the invariants.

        Raises
        ------
        StateError
            One is broken.
        """
        if self.host_used_bytes > self.host_budget_bytes:
            raise StateError(
                f"host holds {self.host_used_bytes} bytes, its budget is {self.host_budget_bytes}"
            )
        for row in self._rows.values():
            if row.num_pins < 0 or (row.num_pins and row.residence not in COMMITTED_ON_HOST):
                raise StateError(f"{row.ref} is {row.residence} and pinned {row.num_pins} times")
            if row.must_store and row.residence not in {R.DIRTY, R.WRITING}:
                raise StateError(f"{row.ref} must be stored but is {row.residence}")
            if row.nbytes < 0:
                raise StateError(f"{row.ref} has {row.nbytes} bytes")
