"""The residency table: legal moves only, nothing dirty or pinned leaves, the plan decides."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plexrl.core.residency import (
    MOVES,
    ON_THE_WAY,
    Move,
    NoRoom,
    Residence,
    ResidencyTable,
    Room,
    RoomAfterWrites,
)
from plexrl.core.states import StateRef
from plexrl.errors import PressureError, StateError

A, B, C = (StateRef(job, "actor", 0) for job in "abc")
TO_DIRTY = (Move.RESERVE, Move.COMMIT)
TO_CLEAN = (*TO_DIRTY, Move.WRITE, Move.WRITTEN)
PATHS = {
    Residence.FILLING: (Move.RESERVE,),
    Residence.DIRTY: TO_DIRTY,
    Residence.WRITING: (*TO_DIRTY, Move.WRITE),
    Residence.CLEAN: TO_CLEAN,
    Residence.STORED: (*TO_CLEAN, Move.EVICT),
    Residence.LOADING: (Move.FIND, Move.LOAD),
    Residence.ARRIVING: (Move.ASK,),
    Residence.COPY: (Move.ASK, Move.ARRIVED),
}


def put(table, ref, residence, nbytes=10):
    for move in PATHS[residence]:
        table.apply(ref, move, nbytes)


@pytest.mark.parametrize("move", list(Move))
@pytest.mark.parametrize("residence", [None, *Residence])
def test_exactly_the_moves_of_the_table_are_legal(residence, move):
    table = ResidencyTable(100)
    if residence:
        put(table, A, residence)
    if move is Move.DISCARD and (residence, move) in MOVES:
        table.make_obsolete(A)
    if (residence, move) in MOVES:
        row = table.apply(A, move, 10)
        assert (row.residence if row else None) is MOVES[residence, move]
        table.check()
    else:
        with pytest.raises(StateError, match=f"a/actor@0 cannot {move}"):
            table.apply(A, move, 10)


def test_an_illegal_move_tells_the_history():
    table = ResidencyTable(100)
    put(table, A, Residence.DIRTY)
    with pytest.raises(StateError, match="it is dirty; its moves so far: reserve, commit"):
        table.apply(A, Move.EVICT)


def test_host_memory_is_counted_from_reservation_to_eviction():
    table = ResidencyTable(100)
    for residence, used in zip(Residence, (10, 10, 10, 10, 0, 10, 10, 10), strict=True):
        table = ResidencyTable(100)
        put(table, A, residence)
        assert table.host_used_bytes == used


def test_the_budget_is_never_exceeded():
    table = ResidencyTable(15)
    put(table, A, Residence.CLEAN)
    with pytest.raises(PressureError, match="needs 10 bytes of host memory, 5 are free"):
        table.apply(B, Move.RESERVE, 10)
    assert table.get(B) is None


def test_a_pinned_version_does_not_leave():
    table = ResidencyTable(10)
    put(table, A, Residence.CLEAN)
    table.pin(A)
    with pytest.raises(StateError, match="pinned 1 times"):
        table.apply(A, Move.EVICT)
    room = table.make_room(10)
    assert isinstance(room, NoRoom)
    assert "a/actor@0 (10 bytes, pinned 1 times)" in room.reason
    table.unpin(A)
    assert table.make_room(10) == Room((A,))


def test_only_committed_versions_on_host_are_pinned():
    table = ResidencyTable(100)
    put(table, A, Residence.FILLING)
    with pytest.raises(StateError, match="it is filling"):
        table.pin(A)
    with pytest.raises(StateError, match="in no tier"):
        table.pin(B)
    with pytest.raises(StateError, match="not pinned"):
        table.unpin(A)


def test_free_room_needs_no_eviction():
    table = ResidencyTable(20)
    put(table, A, Residence.CLEAN)
    assert table.make_room(10) == Room(())


def test_the_furthest_next_use_leaves_first():
    table = ResidencyTable(30)
    for ref in (A, B, C):
        put(table, ref, Residence.CLEAN)
    table.set_next_use([("c", "actor"), ("a", "actor"), ("b", "actor"), ("c", "actor")])
    assert table.make_room(10) == Room((B,))
    assert table.make_room(20) == Room((B, A))
    assert table.make_room(30) == Room((B, A, C))


def test_models_the_plan_does_not_name_leave_before_the_others():
    table = ResidencyTable(20)
    put(table, A, Residence.CLEAN)
    put(table, B, Residence.CLEAN)
    table.set_next_use([("a", "actor")])
    assert table.make_room(10) == Room((B,))


def test_without_a_plan_the_least_recently_used_leaves_first():
    table = ResidencyTable(20)
    put(table, A, Residence.CLEAN)
    put(table, B, Residence.CLEAN)
    table.pin(A)
    table.unpin(A)
    assert table.make_room(10) == Room((B,))


def test_dirty_versions_are_written_only_where_clean_ones_do_not_do():
    table = ResidencyTable(20)
    put(table, A, Residence.DIRTY)
    put(table, B, Residence.CLEAN)
    table.set_next_use([("b", "actor"), ("a", "actor")])
    assert table.make_room(10) == Room((B,))
    assert table.make_room(20) == RoomAfterWrites((A,))


def test_what_is_being_filled_or_loaded_blocks():
    table = ResidencyTable(20)
    put(table, A, Residence.FILLING)
    put(table, B, Residence.LOADING)
    room = table.make_room(5)
    assert isinstance(room, NoRoom)
    assert "a/actor@0 (10 bytes, filling), b/actor@0 (10 bytes, loading)" in room.reason


def test_room_for_a_prefetch_comes_only_from_what_is_used_later():
    table = ResidencyTable(20)
    put(table, A, Residence.CLEAN)
    put(table, B, Residence.CLEAN)
    table.apply(C, Move.FIND, 10)
    table.set_next_use([("a", "actor"), ("c", "actor"), ("b", "actor")])
    assert table.make_room(10, later_than=C) == Room((B,))
    assert isinstance(table.make_room(20, later_than=C), NoRoom)
    table.set_next_use([])
    assert isinstance(table.make_room(10, later_than=C), NoRoom)


def test_newer_versions_make_older_ones_obsolete():
    table = ResidencyTable(100)
    versions = [StateRef("a", "actor", number) for number in range(4)]
    for ref in versions:
        put(table, ref, Residence.DIRTY)
    table.pin(versions[0])
    table.require_store(versions[1])
    table.supersede("a", "actor", 1)
    assert table.droppable() == (versions[2],)
    table.apply(versions[2], Move.DISCARD)
    table.unpin(versions[0])
    assert table.droppable() == (versions[0],)
    table.apply(versions[1], Move.WRITE)
    assert versions[1] not in table.droppable()
    table.apply(versions[1], Move.WRITTEN)
    assert versions[1] in table.droppable()


def test_a_current_version_and_one_to_be_stored_are_never_discarded():
    table = ResidencyTable(100)
    put(table, A, Residence.DIRTY)
    with pytest.raises(StateError, match="nothing replaces it"):
        table.apply(A, Move.DISCARD)
    table.require_store(A)
    table.make_obsolete(A)
    with pytest.raises(StateError, match="must be stored first"):
        table.apply(A, Move.DISCARD)


def test_writes_go_in_version_order_and_urgent_models_first():
    table = ResidencyTable(100)
    old, new = StateRef("a", "actor", 1), StateRef("a", "actor", 2)
    for ref in (new, old, B):
        put(table, ref, Residence.DIRTY)
    assert table.next_write() is None
    for ref in (new, B):
        table.require_store(ref)
    assert table.next_write() == new
    table.require_store(old)
    assert table.next_write() == old
    assert table.next_write([B]) == B


def test_a_failing_write_does_not_hold_up_other_models():
    table = ResidencyTable(100)
    for ref in (A, B):
        put(table, ref, Residence.DIRTY)
        table.require_store(ref)
    assert table.next_write() == A
    table.apply(A, Move.WRITE)
    table.apply(A, Move.WRITE_FAILED)
    assert table.next_write() == B


def test_the_check_finds_a_broken_budget():
    table = ResidencyTable(10)
    put(table, A, Residence.CLEAN)
    table.host_budget_bytes = 9
    with pytest.raises(StateError, match="host holds 10 bytes, its budget is 9"):
        table.check()


@given(
    st.lists(st.tuples(st.sampled_from([A, B, C]), st.sampled_from(Residence), st.booleans())),
    st.permutations([("a", "actor"), ("b", "actor"), ("c", "actor")]),
    st.integers(0, 40),
)
def test_room_is_made_of_clean_unpinned_versions_and_suffices(entries, order, nbytes):
    table = ResidencyTable(30)
    for ref, residence, is_pinned in entries:
        if table.get(ref) is None:
            put(table, ref, residence)
            if is_pinned and residence in {Residence.DIRTY, Residence.CLEAN}:
                table.pin(ref)
    table.set_next_use(order)
    outcome = table.make_room(nbytes)
    if isinstance(outcome, Room):
        for ref in outcome.evict:
            table.apply(ref, Move.EVICT)
        assert table.host_used_bytes + nbytes <= 30
    elif isinstance(outcome, RoomAfterWrites):
        rows = [table.row(ref) for ref in outcome.write]
        assert rows
        assert all(r.residence in {Residence.DIRTY, Residence.WRITING} for r in rows)
        assert not any(row.num_pins for row in rows)
    else:
        held = sum(
            row.nbytes
            for row in table.rows()
            if row.num_pins or row.residence in {Residence.FILLING, *ON_THE_WAY}
        )
        assert held + nbytes > 30
    table.check()


def test_copies_leave_before_anything_is_written_and_leave_no_trace():
    table = ResidencyTable(30)
    put(table, A, Residence.DIRTY)
    put(table, B, Residence.COPY)
    outcome = table.make_room(15)
    assert outcome == Room((B,))
    table.apply(B, Move.EVICT)
    assert table.get(B) is None


def test_a_copy_of_the_weights_replaces_what_is_known_of_the_whole_in_the_store():
    table = ResidencyTable(30)
    table.apply(A, Move.FIND, 25)
    assert table.apply(A, Move.ASK, 10).nbytes == 10
    assert table.host_used_bytes == 10
